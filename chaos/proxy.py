"""A TCP proxy that breaks the conversation where it is told: an answer swallowed, a stream cut, a delay."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

Way = Literal["swallow", "cut answer", "cut request", "delay"]
WAYS: tuple[Way, ...] = ("swallow", "cut answer", "cut request", "delay")


@dataclass
class Fault:
    """What to do, and when: at the `at`-th piece of an answer (swallow, delay) or after `at` bytes (the cuts)."""

    way: Way
    at: int
    seconds: float = 0.05
    fired: bool = False
    seen: int = 0

    def due(self, size: int) -> int | None:
        """How many bytes of the next `size` may still pass, or None while it is not yet time."""
        if self.fired:
            return None
        before, self.seen = self.seen, self.seen + (size if self.way.startswith("cut") else 1)
        if self.seen < self.at:
            return None
        self.fired = True
        return max(self.at - before, 0) if self.way.startswith("cut") else 0


class Proxy:
    """Stands between a client and the server of `url`; runs in a thread of its own. A fault is armed once at a time."""

    def __init__(self, url: str) -> None:
        split = urlsplit(url)
        self._server = (split.hostname or "127.0.0.1", split.port or 0)
        self._split = split
        self._fault: Fault | None = None
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="chaos-proxy")
        self._thread.start()
        self._listener = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port = self._listener.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """The URL that leads through here."""
        user, at, _ = self._split.netloc.rpartition("@")
        return self._split._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    def arm(self, fault: Fault | None) -> None:
        """Let `fault` happen once, from now on; None: pass everything."""
        self._fault = fault

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, "127.0.0.1", 0)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._server)
        except OSError:
            writer.close()
            return
        pair = (writer, far_writer)
        self._writers.update(pair)
        for way in (self._pass_on(reader, far_writer, pair, True), self._pass_on(far_reader, writer, pair, False)):
            task = self._loop.create_task(way)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        request: bool,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                fault = self._fault
                passing = fault.due(len(data)) if fault and (fault.way == "cut request") == request else None
                if fault is not None and passing is not None and fault.way == "delay":
                    await asyncio.sleep(fault.seconds)
                elif passing is not None:
                    writer.write(data[:passing])
                    await writer.drain()
                    break
                writer.write(data)
                await writer.drain()
        for one in pair:
            self._writers.discard(one)
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._listener.close()
        for writer in list(self._writers):
            writer.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
