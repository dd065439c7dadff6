"""A payer's portal to run against: a process of its own, with a ledger and every way of failing.

    python -m umavez_systems.processos.portal.simulator --database portal.db --port 8020 --rate lose_after=0.3 --seed 7

The ledger has no unique constraint: one would hide the second submission that everybody looks for.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from umavez import BoundedJson, ConfigurationError
from umavez_systems.processos.portal.ledger import Ledger, Refusal

_BOUNDED = BoundedJson()
FAULTS = {
    "busy": "429 with Retry-After, before acting",
    "error_before": "500 before acting",
    "error_after": "503 after acting",
    "lose_before": "the connection drops before acting",
    "lose_after": "the connection drops after acting",
    "hang_before": "no answer for `hold` seconds, nothing done",
    "hang_after": "acts, then no answer for `hold` seconds",
    "late": "acts only after `hold` seconds, when the caller is gone",
}


class Faults:
    """Which fault the next request meets: those queued first, then by chance, with a seed."""

    def __init__(self, rates: dict[str, float], seed: int) -> None:
        self._rates = rates
        self._random = random.Random(seed)  # noqa: S311  # a seeded schedule must repeat
        self._queue: list[str] = []
        self._lock = threading.Lock()

    def queue(self, next: list[str]) -> None:  # noqa: A002  # the word on the wire
        """Let the next requests meet these faults, one each; "ok" is none."""
        with self._lock:
            self._queue = [name for name in next if name in FAULTS or name == "ok"]

    def next(self) -> str:
        """The fault of this request."""
        with self._lock:
            if self._queue:
                return self._queue.pop(0)
            chance = self._random.random()
            for name, rate in self._rates.items():
                chance -= rate
                if chance < 0:
                    return name
            return "ok"


class Portal(ThreadingHTTPServer):
    """The simulator's server."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, ledger: Ledger, faults: Faults, hold: float) -> None:
        self.ledger = ledger
        self.faults = faults
        self.hold = hold
        self.told: dict[str, Callable[..., None]] = {
            "/simulator/faults": faults.queue,
            "/simulator/situacao": ledger.place,
            "/simulator/glosa": ledger.deny,
            "/simulator/recurso": ledger.decide,
            "/simulator/duplicados": ledger.refuse,
        }
        """What whoever runs the simulator may tell it, without any fault in between."""
        super().__init__(("127.0.0.1", port), Answer)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no error here."""


class Answer(BaseHTTPRequestHandler):
    """One connection."""

    server: Portal
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """The ledger, for whoever counts."""
        self._say(200, self.server.ledger.contents() if self.path == "/simulator/ledger" else {"status": "ok"})

    def do_POST(self) -> None:
        """Every verb of the portal, each through the faults."""
        content = self._content()
        if content is None:
            self.close_connection = True
            self._say(400, {})
            return
        if told := self.server.told.get(self.path):
            told(**content)
            self._say(200, {})
            return
        fault = self.server.faults.next()
        if not self._before(fault):
            self._act(fault, content)

    def _content(self) -> dict[str, Any] | None:
        """The body; None for one that is no JSON object, or is not read because it is too long."""
        try:
            length = int(self.headers.get("Content-Length", 0))
            content = _BOUNDED.parse(self.rfile.read(length) or b"{}") if 0 <= length <= _BOUNDED.size else None
        except ValueError:
            return None
        return content if isinstance(content, dict) else None

    def _before(self, fault: str) -> bool:
        """Faults in which nothing is done; True when the request ends with one."""
        if fault == "busy":
            self._say(429, {}, {"Retry-After": "1"})
        elif fault == "error_before":
            self._say(500, {})
        elif fault in ("lose_before", "hang_before"):
            self._drop(self.server.hold if fault == "hang_before" else 0.0)
        else:
            return False
        return True

    def _act(self, fault: str, content: dict[str, Any]) -> None:
        if fault == "late":
            time.sleep(self.server.hold)
        try:
            status, answer = self.server.ledger.act(self.path, content)
        except Refusal as refusal:
            status, answer = refusal.status, refusal.body
        if fault == "error_after":
            self._say(503, {})
        elif fault in ("lose_after", "late", "hang_after"):
            self._drop(self.server.hold if fault == "hang_after" else 0.0)
        else:
            self._say(status, answer)

    def _drop(self, seconds: float) -> None:
        time.sleep(seconds)
        self.close_connection = True

    def _say(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
        """Silent: requests hold patient data."""


def main(arguments: list[str] | None = None) -> None:
    """Serve until killed; the first line printed says where."""
    chosen = _options().parse_args(arguments)
    try:
        ledger = Ledger(chosen.database, refuse_duplicates=chosen.refuse_duplicates)
    except sqlite3.Error as error:
        raise ConfigurationError(f"{chosen.database} cannot hold the ledger ({error}); name another file.") from error
    with Portal(chosen.port, ledger, Faults(dict(chosen.rate), chosen.seed), chosen.hold) as portal:
        sys.stdout.write(f"http://127.0.0.1:{portal.server_address[1]}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            portal.serve_forever()


def _options() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {name:<13} {meaning}" for name, meaning in FAULTS.items())
    parser = argparse.ArgumentParser(
        prog="umavez processos portal",
        description="Run a simulated payer until it is stopped; the first line says where it is.",
        epilog=f"faults:\n{faults}\n\nexample:\n  umavez processos portal --port 8020 --rate lose_after=0.3",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--database", metavar="FILE", default="portal.db", help="where the ledger is kept (portal.db)")
    parser.add_argument("--port", type=_port, default=8020, help="on 127.0.0.1 (8020); 0: any that is free")
    parser.add_argument("--seed", type=int, default=1, help="repeats the faults that come by chance")
    parser.add_argument("--hold", type=_seconds, default=30.0, help="seconds of hang_before, hang_after and late")
    parser.add_argument("--refuse-duplicates", action="store_true", help="glosa 1308 for a guia handed in before")
    parser.add_argument(
        "--rate", type=_rate, action="append", default=[], metavar="FAULT=0.1", help="how often a fault comes by chance"
    )
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give a number up to 65535")
    return int(text)


def _seconds(text: str) -> float:
    return _within(text, 86_400, f"{text!r} are no seconds; give a number up to 86400")


def _rate(text: str) -> tuple[str, float]:
    name, _, rate = text.partition("=")
    if name not in FAULTS:
        raise argparse.ArgumentTypeError(f"{name!r} is not a fault; known are {', '.join(FAULTS)}")
    return name, _within(rate, 1, f"{text!r} is no rate; write {name}=0.1 for one request in ten")


def _within(text: str, most: float, complaint: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise argparse.ArgumentTypeError(complaint)
    return number


if __name__ == "__main__":
    main()
