"""AsyncPipe: one connection to Redis, shared by the tasks of one event loop.

Written beside `Pipe` and not from it, because waiting differs. Commands of one turn of the loop leave in one write.
Replies come in the order of the commands and each settles the oldest waiting future; a cancelled task's future stays in
line and takes its reply with it. A reply too many, or anything unreadable, closes the connection, so no task is ever
given another one's reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Any, cast

from hiredis import ProtocolError, Reader

from umavez.concurrency.after_fork import reset_after_fork
from umavez.concurrency.waiting import shut
from umavez.errors import StoreError
from umavez.stores.redis.errors import not_opened, uncertain, unreachable
from umavez.stores.redis.handshake import admit, greeting
from umavez.stores.redis.sentinel import async_located
from umavez.stores.redis.url import Address

FLIGHT = 12
"""Commands in one write. More would leave the server idle while tasks run, and tasks idle while it answers; fewer
cost a system call too many. Of 8, 12, 16, 24 and 32, twelve did most for 32 tasks and nearly most for 128."""


class AsyncPipe:
    """Carries packed commands over one wire. It repairs itself: after a failure the next call opens a new one."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._wire: AsyncWire | None = None
        self._opening: asyncio.Task[AsyncWire] | None = None
        self.opened = 0
        """How often a connection was opened: who compares before and after knows whether it was the same one."""
        reset_after_fork(self)

    def call(self, command: bytes) -> Awaitable[Any]:
        """The reply to `command`: a value, or a ReplyError as a value. Raises StoreError."""
        wire = self._wire
        if wire is None or wire.closed or wire.loop is not asyncio.get_running_loop():
            return self._call_anew(command)
        return wire.call(command)  # the future itself: no coroutine for what nearly every call does

    async def _call_anew(self, command: bytes) -> Any:
        wire = await self._opened()
        return await wire.call(command)

    async def _opened(self) -> AsyncWire:
        """The wire that all tasks share. A task cancelled meanwhile does not take it from the others."""
        loop = asyncio.get_running_loop()
        opening = self._opening
        if opening is None or opening.done() or opening.get_loop() is not loop:
            opening = self._opening = loop.create_task(self._kept())
            opening.add_done_callback(_look_at)
        return await asyncio.shield(opening)

    async def _kept(self) -> AsyncWire:
        """A new wire, which is everybody's from the moment on in which it is there.

        Not by the end of the task that opens it: whoever came between the two would open another, and nobody would
        ever close the one of them that is not kept.
        """
        wire = await _open(self._address)
        before, self._wire = self._wire, wire
        self.opened += 1
        if before is not None and before.loop is not wire.loop:
            before.cut()
        return wire

    def distrust(self) -> None:
        """Let nobody use the connection again."""
        if self._wire is not None:
            self._wire.fail(None)

    async def close(self) -> None:
        """Wait for the replies that are due and close the connection; the next use opens a new one."""
        wire, self._wire = self._wire, None
        if wire is not None and wire.loop is asyncio.get_running_loop():
            await wire.close()

    def reset(self) -> None:
        """Begin anew in a forked child, leaving the parent's connection alone."""
        if self._wire is not None:
            _INHERITED.append(self._wire)
        self._wire = self._opening = None


def _look_at(opening: asyncio.Task[AsyncWire]) -> None:
    """Nobody else may: every task that waited for it may have been cancelled."""
    if not opening.cancelled():
        opening.exception()


_INHERITED: list[AsyncWire] = []
"""Wires of a parent process: kept, since their end would reach into the parent's event loop."""


class AsyncWire(asyncio.Protocol):
    """A connected socket and the replies that arrive on it. It carries packed commands until it is `closed`."""

    def __init__(self, address: Address) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._address = address
        self._gone: asyncio.Future[None] = self.loop.create_future()
        self._reader = Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._lone = True
        self._flushing = False
        self._last_heard = self.loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def call(self, command: bytes) -> asyncio.Future[Any]:
        """The reply to `command`, later: a value, or a ReplyError as a value. Fails with StoreError."""
        reply: asyncio.Future[Any] = self.loop.create_future()
        if self.closed:
            reply.set_exception(unreachable(self._address))
            return reply
        lone = self._lone and not self._waiting
        self._waiting.append(reply)
        self._unsent.append(command)
        if lone or len(self._unsent) >= FLIGHT:
            # Nobody to share a write with, or enough for the server to begin while the other tasks go on.
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush_the_turn)
        return reply

    def _flush_the_turn(self) -> None:
        self._flushing = False
        self._flush()

    def _flush(self) -> None:
        if self.closed or not self._unsent or self._transport is None:
            return
        data = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
        if len(self._unsent) == len(self._waiting):
            self._last_heard = self.loop.time()
        if self._watch is None:
            self._watch = self.loop.call_later(self._address.timeout, self._look_after)
        # Forgotten before the write: from here on, whatever happens, they may have arrived.
        self._unsent.clear()
        self._transport.write(data)

    def _look_after(self) -> None:
        """Close the wire when replies are due and none came for the whole timeout."""
        self._watch = None
        if self.closed or not self._waiting:
            return
        left = self._last_heard + self._address.timeout - self.loop.time()
        if left <= 0:
            self.fail(TimeoutError("no reply in time"))
        else:
            self._watch = self.loop.call_later(left, self._look_after)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Give each reply to the future that is first in line."""
        waiting, gets = self._waiting, self._reader.gets
        self._last_heard = self.loop.time()
        before = len(waiting)
        try:
            self._reader.feed(data)
            while (reply := gets()) is not False:
                if len(waiting) == len(self._unsent):
                    raise ProtocolError("more replies than commands")  # noqa: TRY301 -- one way out for both causes
                future = waiting.popleft()
                if not future.done():
                    future.set_result(reply)
        except ProtocolError as error:
            self.fail(error)
            return
        self._lone = before - len(waiting) <= 1

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.fail(exc)
        if not self._gone.done():
            self._gone.set_result(None)

    def fail(self, cause: BaseException | None) -> None:
        """Close the connection at once and tell all who wait whether their command may have arrived."""
        if self.closed:
            return
        self.closed = True
        if self._watch is not None:
            self._watch.cancel()
        sent = len(self._waiting) - len(self._unsent)
        for place, future in enumerate(self._waiting):
            if not future.done():
                error: StoreError = (uncertain if place < sent else unreachable)(self._address)
                error.__cause__ = cause
                future.set_exception(error)
        self._waiting.clear()
        self._unsent.clear()
        if self._transport is not None:
            self._transport.abort()

    def cut(self) -> None:
        """End the conversation of a loop that is over."""
        shut(self._transport, self.loop)

    async def close(self) -> None:
        """Wait for the replies that are due, then close the connection."""
        self._flush()
        if self._waiting:
            await asyncio.wait(list(self._waiting))
        self.fail(None)
        await asyncio.shield(self._gone)


async def _open(address: Address) -> AsyncWire:
    """A wire on which the server has accepted the greeting. Raises StoreUnavailable or ConfigurationError."""
    loop = asyncio.get_running_loop()
    address = await async_located(address)
    name = address.host if address.tls else None
    try:
        async with asyncio.timeout(address.connect_timeout):
            _, wire = await loop.create_connection(
                lambda: AsyncWire(address), address.host, address.port, ssl=address.tls, server_hostname=name
            )
    except OSError as error:  # TimeoutError is one too
        raise not_opened(address, error) from error
    try:
        # Failures come back as values, so that none of the futures is left unlooked at.
        replies = await asyncio.gather(*map(wire.call, greeting(address)), return_exceptions=True)
        _raise_first(replies, address)
        admit(address, replies)
    except BaseException:
        wire.fail(None)
        raise
    return wire


def _raise_first(replies: list[Any], address: Address) -> None:
    """A greeting writes nothing, so losing the connection within it is never uncertain."""
    for reply in replies:
        if isinstance(reply, StoreError):
            raise unreachable(address) from reply
