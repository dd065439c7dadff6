"""Pools: connections for what is not a swap, so many and no more, each lent to one caller at a time.

Without the bound, a thousand callers who look at once would take every connection that the server has. Written twice by
hand, because waiting differs: threads wait in a queue; tasks wait at a semaphore of their loop, and when that loop is
over neither they nor what was lent to them comes back.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from umavez.concurrency.after_fork import reset_after_fork
from umavez.concurrency.waiting import refuse_rival
from umavez.errors import StoreUnavailable

_INHERITED: list[object] = []
"""Connections of a parent process. Kept, so that nothing closes them: closing would end the parent's session."""


class Lendable(Protocol):
    """A connection that opens itself when it is used."""

    def drop(self) -> None:
        """Close it at once, without waiting."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class AsyncLendable(Protocol):
    """A Lendable whose closing is awaited."""

    def drop(self) -> None:
        """Close it at once, without waiting."""
        ...

    async def close(self) -> None:
        """Take leave of the server and close it."""
        ...


C = TypeVar("C", bound=Lendable)
A = TypeVar("A", bound=AsyncLendable)


class Pool(Generic[C]):
    """Connections shared by threads. Nobody waits for one for more than `patience` seconds."""

    def __init__(self, make: Callable[[], C], size: int, patience: float) -> None:
        self._make = make
        self._size = size
        self._patience = patience
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._spare: list[C] = []
        self._lent: dict[C, bool] = {}
        """Those that are in use, and whether they are wanted back."""
        # Turns in a queue, which is written in C: a semaphore of threads costs ten times as much, at every look.
        self._turns: SimpleQueue[None] = SimpleQueue()
        for _ in range(self._size):
            self._turns.put(None)

    def reset(self) -> None:
        """What a forked child does: connections and locks are the parent's."""
        _INHERITED.extend((*self._spare, *self._lent))
        self._begin()

    def take(self) -> C:
        """A connection that nobody else uses; `give_back` must follow. Raises StoreUnavailable when none was free."""
        try:
            self._turns.get(timeout=self._patience)
        except Empty:
            raise _crowded(self._patience) from None
        with self._lock:
            connection = self._spare.pop() if self._spare else self._make()
            self._lent[connection] = True
        return connection

    def give_back(self, connection: C) -> None:
        """The next caller may have it; if the pool was closed meanwhile, nobody."""
        with self._lock:
            wanted = self._lent.pop(connection, None)
            if wanted:
                self._spare.append(connection)
        if wanted is None:  # lent before a fork: it is the parent's
            return
        try:
            if not wanted:
                connection.drop()
        finally:
            self._turns.put(None)

    def close(self) -> None:
        """Close every connection, those in use when they are given back. A later use makes new ones."""
        with self._lock:
            spare, self._spare = self._spare, []
            self._lent = dict.fromkeys(self._lent, False)
        for connection in spare:
            connection.close()


class AsyncPool(Generic[A]):
    """Connections shared by the tasks of one loop at a time; see Pool."""

    def __init__(self, make: Callable[[], A], size: int, patience: float) -> None:
        self._make = make
        self._size = size
        self._patience = patience
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        self._spare: list[A] = []
        self._lent: dict[A, bool] = {}
        """Those that are in use in this loop, and whether they are wanted back."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = asyncio.Semaphore(self._size)

    def reset(self) -> None:
        """See Pool.reset. The loop is the parent's too."""
        _INHERITED.extend((*self._spare, *self._lent))
        self._begin()

    async def take(self) -> A:
        """See Pool.take."""
        self._move()
        turns = self._turns
        if turns.locked():
            await self._wait(turns)
        else:
            await turns.acquire()
        connection = self._spare.pop() if self._spare else self._make()
        self._lent[connection] = True
        return connection

    async def _wait(self, turns: asyncio.Semaphore) -> None:
        """A timer only for those who have to wait."""
        try:
            async with asyncio.timeout(self._patience):
                await turns.acquire()
        except TimeoutError:
            raise _crowded(self._patience) from None

    def _move(self) -> None:
        """Leave behind what a loop that is over was in the middle of. Raises StoreUnavailable where it runs on."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._lent:
                refuse_rival(self._loop, os.getpid())
            for connection in self._lent:
                connection.drop()
            self._lent = {}
            self._loop, self._turns = loop, asyncio.Semaphore(self._size)

    def give_back(self, connection: A) -> None:
        """See Pool.give_back. Not awaited, so that a task which is being torn down can do it too."""
        wanted = self._lent.pop(connection, None)
        if wanted is None:  # lent in a loop that is over, or before a fork
            return
        if wanted:
            self._spare.append(connection)
        else:
            connection.drop()
        self._turns.release()

    async def close(self) -> None:
        """See Pool.close."""
        self._move()
        spare, self._spare = self._spare, []
        self._lent = dict.fromkeys(self._lent, False)
        for connection in spare:
            await connection.close()


def _crowded(seconds: float) -> StoreUnavailable:
    return StoreUnavailable(
        f"Every connection was busy with other looks for {seconds:g} s; nothing was asked, try again.", waited=True
    )
