"""Readiness: how a thread and a task wait for their connection's socket. Here waiting differs, so both are by hand.

An exchange with the server waits as often as it must; from its first wait on the server may be silent for `patience`
seconds, `until` then, and NoReply is raised. Whoever begins an exchange sets `until` to None.
"""

from __future__ import annotations

import asyncio
import select
from asyncio import get_running_loop
from time import monotonic
from typing import Any

from psycopg import AsyncConnection, Connection

from umavez.stores.postgres.errors import NoReply


class Readiness:
    """A thread waits by poll(): select() fails for descriptors above 1023."""

    def __init__(self, connection: Connection[Any], patience: float) -> None:
        self._patience = patience
        self._millis = patience * 1000
        self.until: float | None = None
        self._incoming, self._outgoing = select.poll(), select.poll()
        self._incoming.register(connection.pgconn.socket, select.POLLIN)
        self._outgoing.register(connection.pgconn.socket, select.POLLOUT)

    def readable(self) -> None:
        """Return when there is something to read. Raises NoReply."""
        if not self._incoming.poll(self._left()):
            raise NoReply(self._patience)

    def writable(self) -> None:
        """Return when the socket takes more. Raises NoReply."""
        if not self._outgoing.poll(self._left()):
            raise NoReply(self._patience)

    def _left(self) -> float:
        """Milliseconds that the server may still be silent for."""
        if self.until is None:
            self.until = monotonic() + self._patience
            return self._millis
        return max(0.0, self.until - monotonic()) * 1000

    def stop(self) -> None:
        """Nothing: nobody else knows of the socket."""

    def abandon(self) -> None:
        """Nothing, as `stop`."""


class AsyncReadiness:
    """Wakes a task when its connection has something to read.

    It stays registered with the loop between waits, because registering anew costs more than waiting. As long as it
    is, it holds the connection: closed, its descriptor could come to mean another socket. One timer looks after all
    waits, because one for each would cost more.
    """

    def __init__(self, connection: AsyncConnection[Any], patience: float) -> None:
        self._connection = connection
        self._patience = patience
        self.until: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._socket = connection.pgconn.socket
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._strays = 0

    def readable(self) -> asyncio.Future[None]:
        """Done when there is something to read. The loop may be another each time."""
        loop = get_running_loop()
        if self.until is None:
            self.until = loop.time() + self._patience
        if loop is not self._loop:
            self.stop()
            loop.add_reader(self._socket, self._wake)
            self._loop = loop
        self._strays = 0
        if self._watch is None:
            self._watch = loop.call_later(self._patience, self._look_after)
        self._waiter = waiter = loop.create_future()
        return waiter

    def _look_after(self) -> None:
        self._watch = None
        waiter, loop = self._waiter, self._loop
        if waiter is None or waiter.done() or loop is None or self.until is None:
            return
        left = self.until - loop.time()
        if left > 0:
            self._watch = loop.call_later(left, self._look_after)
        else:
            waiter.set_exception(NoReply(self._patience))

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
            return
        # Nobody waits. Once is usual: a loop may look again before the task has read. More means that the server
        # hung up, and the loop would call for ever.
        self._strays += 1
        if self._strays > 1:
            self.stop()

    async def writable(self) -> None:
        """Return when the socket takes more. Rare, so nothing stays registered. Raises NoReply."""
        loop = get_running_loop()
        if self.until is None:
            self.until = loop.time() + self._patience
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(self._socket, _set, ready)
        try:
            async with asyncio.timeout_at(self.until):
                await ready
        except TimeoutError as error:
            raise NoReply(self._patience) from error
        finally:
            loop.remove_writer(self._socket)

    def stop(self) -> None:
        """Leave the loop. To be called before the connection is closed."""
        loop, self._loop = self._loop, None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._socket)

    def abandon(self) -> None:
        """Leave the loop soon, from whatever thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.stop)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
