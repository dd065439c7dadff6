"""The far side: a process with state of its own, which acts, may lose its answer, and can be asked.

Its ledger has no unique constraint. A request that says "dedupe" is carried out once per key, as a bank that takes
idempotency keys does; any other is carried out as often as it comes. Whoever asks is told the truth: once it has said
"not here" about an attempt, a late request of that attempt (its fence is not higher) is turned away.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections import Counter
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from chaos.engine_swarm import FORKS, end


class Dropped(Exception):
    """The far side hung up without an answer; it may have acted."""


class TurnedAway(Exception):
    """The far side has told somebody else that this attempt never happened, and keeps to it."""


class State:
    """What the far side knows. `drops` is the share of answers it loses."""

    def __init__(self, seed: int) -> None:
        self.ledger: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.drops = 0.3
        self._values: dict[str, str] = {}
        self._closed: dict[str, int] = {}
        self._chance = random.Random(seed)

    def do(self, key: str, fence: int, dedupe: bool) -> dict[str, Any]:
        """Act, unless the key is known and dedupes, or the attempt was declared dead."""
        self.counts["requests"] += 1
        if fence <= self._closed.get(key, -1):
            self.counts["turned away"] += 1
            return {"turned_away": True}
        if dedupe and key in self._values:
            self.counts["deduped"] += 1
            return {"value": self._values[key]}
        value = f"effect-{len(self.ledger)}"
        self.ledger.append((key, value))
        self._values.setdefault(key, value)
        return {"value": value}

    def ask(self, key: str, fence: int) -> dict[str, Any]:
        """Whether it happened; "no" binds this side too."""
        self.counts["asked"] += 1
        if key in self._values:
            return {"value": self._values[key]}
        self._closed[key] = max(fence, self._closed.get(key, -1))
        self.counts["said no"] += 1
        return {"value": None}

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a request, or None when it gets lost on the way."""
        verb = request.pop("verb")
        if verb == "dump":
            return {"ledger": self.ledger, "counts": dict(self.counts)}
        if verb == "calm":
            self.drops = 0.0
            return {}
        reply = self.do(**request) if verb == "do" else self.ask(**request)
        if self._chance.random() < self.drops:
            self.counts["answers dropped"] += 1
            return None
        return reply


def serve(address: Connection, seed: int) -> None:
    """Answer on a port of its own, told through `address`, until killed."""
    asyncio.run(_serve(address, State(seed)))


async def _serve(address: Connection, state: State) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                reply = state.answer(json.loads(line))
                if reply is None:
                    break
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**26)
    address.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class Authority:
    """The running far side, as the trial sees it."""

    def __init__(self, seed: int) -> None:
        here, there = FORKS.Pipe()
        self._process = FORKS.Process(target=serve, args=(there, seed), daemon=True)
        self._process.start()
        self.port = int(here.recv())
        here.close()
        there.close()
        self.line = FarSide(self.port)

    def close(self) -> None:
        """End it."""
        self.line.close()
        end(self._process)


class FarSide:
    """A client's line to the far side, opened when needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def call(self, verb: str, **request: Any) -> dict[str, Any]:
        """Send a request. Raises Dropped when no answer comes, TurnedAway when the attempt is dead."""
        try:
            self._socket = self._socket or socket.create_connection(("127.0.0.1", self._port), timeout=30)
            self._socket.sendall(json.dumps({"verb": verb, **request}).encode() + b"\n")
            line = self._line(self._socket)
        except OSError as error:
            self.close()
            raise Dropped(str(error)) from error
        if not line:
            self.close()
            raise Dropped("no answer")
        reply: dict[str, Any] = json.loads(line)
        if reply.get("turned_away"):
            raise TurnedAway
        return reply

    def _line(self, source: socket.socket) -> bytes:
        with source.makefile("rb") as stream:
            return stream.readline()

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
