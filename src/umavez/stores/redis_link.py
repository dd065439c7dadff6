"""Link: one connection to Redis, shared by the tasks of one event loop.

Commands of one turn of the loop leave in one write. Replies come in the order of the commands and each
settles the oldest waiting future; a cancelled task's future stays in line and takes its reply with it. A
reply too many, or anything unreadable, closes the connection, so no task is ever given another one's reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

from hiredis import ProtocolError, Reader

from umavez.errors import StoreError
from umavez.stores.redis_address import Address
from umavez.stores.redis_greeting import admit, greeting
from umavez.stores.redis_pipe import not_opened, uncertain, unreachable

FLIGHT = 12
"""Commands in one write. More would leave the server idle while tasks run, and tasks idle while it answers; fewer
cost a system call too many. Of 8, 12, 16, 24 and 32, twelve did most for 32 tasks and nearly most for 128."""


class Link(asyncio.Protocol):
    """Carries packed commands until it is `closed`; then a new one must be opened."""

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
        """Close the link when replies are due and none came for the whole timeout."""
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

    async def close(self) -> None:
        """Wait for the replies that are due, then close the connection."""
        self._flush()
        if self._waiting:
            await asyncio.wait(list(self._waiting))
        self.fail(None)
        await asyncio.shield(self._gone)


async def open_link(address: Address) -> Link:
    """A link on which the server has accepted the greeting. Raises StoreUnavailable or ConfigurationError."""
    loop = asyncio.get_running_loop()
    name = address.host if address.tls else None
    try:
        async with asyncio.timeout(address.connect_timeout):
            _, link = await loop.create_connection(
                lambda: Link(address), address.host, address.port, ssl=address.tls, server_hostname=name
            )
    except OSError as error:  # TimeoutError is one too
        raise not_opened(address, error) from error
    try:
        # Failures come back as values, so that none of the futures is left unlooked at.
        replies = await asyncio.gather(*map(link.call, greeting(address)), return_exceptions=True)
        _raise_first(replies, address)
        admit(address, replies)
    except BaseException:
        link.fail(None)
        raise
    return link


def _raise_first(replies: list[Any], address: Address) -> None:
    """A greeting writes nothing, so losing the connection within it is never uncertain."""
    for reply in replies:
        if isinstance(reply, StoreError):
            raise unreachable(address) from reply
