"""Reading: how a task waits for its connection's socket."""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from typing import Any

from psycopg import AsyncConnection


class Reading:
    """Wakes a task when its connection has something to read.

    It stays registered with the loop between waits, because registering anew costs more than waiting. As long as it
    is, it holds the connection: closed, its descriptor could come to mean another socket.
    """

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._socket = connection.pgconn.socket
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._strays = 0

    def ready(self) -> asyncio.Future[None]:
        """Done when there is something to read. The loop may be another each time."""
        loop = get_running_loop()
        if loop is not self._loop:
            self.stop()
            loop.add_reader(self._socket, self._wake)
            self._loop = loop
        self._strays = 0
        self._waiter = waiter = loop.create_future()
        return waiter

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

    def stop(self) -> None:
        """Leave the loop. To be called before the connection is closed."""
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._socket)

    def abandon(self) -> None:
        """Leave the loop soon, from whatever thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.stop)


async def writable(socket: int) -> None:
    """Wait until the socket takes more. Rare, so nothing stays registered."""
    loop = get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(socket, _set, ready)
    try:
        await ready
    finally:
        loop.remove_writer(socket)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
