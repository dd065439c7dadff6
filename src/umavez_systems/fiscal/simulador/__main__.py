"""`umavez fiscal simular`: serve the simulated authorities until stopped; the first line says where."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from umavez_systems.fiscal.simulador.certificates import Cartorio
from umavez_systems.fiscal.simulador.faults import Falhas
from umavez_systems.fiscal.simulador.ledger import Livros
from umavez_systems.fiscal.simulador.server import Autoridades, Controle, Mundo, _Server

ADDRESS = "endereco.json"
USERS = "em-uso"
"""Whoever uses the simulator holds a shared lock on this file of its folder (see keeper.py)."""
OWNER = "em-pe"
"""The simulator itself holds this one."""
LOOK = 0.5
"""Seconds between two looks."""


def main(arguments: list[str] | None = None) -> None:
    """Serve until killed or, with --while-used, until its last user is gone."""
    parser = argparse.ArgumentParser(prog="umavez fiscal simular", description="Simulated tax authorities.")
    parser.add_argument("--port", type=int, default=0, help="the services, over TLS (0: any free port)")
    parser.add_argument("--control-port", type=int, default=0, help="the control API, plain HTTP on loopback")
    parser.add_argument("--state", default="umavez-fiscal", help="folder for books and certificates")
    parser.add_argument("--seed", type=int, default=1, help="repeats the faults that come by chance")
    parser.add_argument("--while-used", action="store_true", help="end when no process uses it any more")
    chosen = parser.parse_args(arguments)
    state = Path(chosen.state)
    state.mkdir(parents=True, exist_ok=True)
    owned = _alone(state)
    registry = Cartorio(state / "certificados")
    world = Mundo(Livros(state / "livro.db"), Falhas(chosen.seed, state / "taxas.json"))
    try:
        services = Autoridades(chosen.port, world, _context(registry))
        control = _Server(chosen.control_port, Controle, world)
    except OSError as error:
        sys.exit(
            f"umavez fiscal simular: a porta {chosen.port or chosen.control_port} não está livre ({error.strerror})."
        )
    where = {
        "servicos": f"https://127.0.0.1:{services.server_address[1]}",
        "controle": f"http://127.0.0.1:{control.server_address[1]}",
        "ca": str(registry.ca_file.resolve()),
        "pid": os.getpid(),
    }
    fresh = state / f"{ADDRESS}.novo"
    fresh.write_text(json.dumps(where))
    fresh.replace(state / ADDRESS)
    sys.stdout.write(json.dumps(where) + "\n")
    sys.stdout.flush()
    threading.Thread(target=control.serve_forever, daemon=True).start()
    if chosen.while_used:
        threading.Thread(target=_end_unused, args=(state / USERS,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        services.serve_forever()
    owned.close()


def _context(registry: Cartorio) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(registry.server_file)
    context.load_verify_locations(registry.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _end_unused(path: Path) -> None:
    """End when the file can be had alone: every user has ended, in whatever way."""
    with path.open("a") as file:
        while not _had(file):
            time.sleep(LOOK)
        os._exit(0)


def _alone(state: Path) -> TextIO:
    """Hold the folder's books: two authorities on one set would not see each other. Ends the process if they are held.

    One that was killed a moment ago may still be about to let go.
    """
    file = (state / OWNER).open("a")
    for _ in range(10):
        if _had(file):
            return file
        time.sleep(LOOK)
    sys.exit(f"umavez fiscal simular: outro simulador tem os livros de {state}.")


def _had(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
