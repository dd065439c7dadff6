"""Faults: stores that fail at one chosen call, so that a test can fail each call in turn.

    for nth in count(1):
        faulty = FailAfter(MemoryStore(), nth)
        ...
        if not faulty.struck:
            break

`read`, `swap`, `sweep` and `find` are counted, from 1. Every other call goes straight through.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import StoreUnavailable, StoreUncertain
from umavez.stores import AsyncStore, Store

T = TypeVar("T")


class Tapped(ABC):
    """A store whose every call goes through `_call`; what a fault does, it does there."""

    def __init__(self, store: Store, nth: int) -> None:
        self._store = store
        self._nth = nth
        self._lock = threading.Lock()
        self.calls = 0

    @property
    def struck(self) -> bool:
        """Whether the call to fail has come."""
        return self.calls >= self._nth

    def _call(self, verb: Callable[[], T]) -> T:
        with self._lock:
            self.calls += 1
            due = self.calls == self._nth
        return self._fault(verb) if due else verb()

    @abstractmethod
    def _fault(self, verb: Callable[[], T]) -> T:
        """What the call that is due meets."""

    def read(self, key: Key) -> Seen:
        """See Store.read."""
        return self._call(lambda: self._store.read(key))

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap."""
        return self._call(lambda: self._store.swap(expected, draft))

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """See Store.sweep."""
        return self._call(lambda: self._store.sweep(limit, older_than))

    def find(self, query: Query) -> list[Record]:
        """See Store.find."""
        return self._call(lambda: self._store.find(query))

    def migrate(self) -> str:
        """See Store.migrate."""
        return self._store.migrate()

    def joined(self, connection: Any, *args: Any, **options: Any) -> Store:
        """See Store.joined."""
        return self._store.joined(connection, *args, **options)

    def close(self) -> None:
        """See Store.close."""
        self._store.close()


class FailBefore(Tapped):
    """The n-th call does nothing and raises StoreUnavailable."""

    def _fault(self, verb: Callable[[], T]) -> T:
        raise StoreUnavailable("The store was made to fail before this call.")


class FailAfter(Tapped):
    """The n-th call does its work and raises StoreUncertain: the answer is lost on the way."""

    def _fault(self, verb: Callable[[], T]) -> T:
        verb()
        raise StoreUncertain("The store was made to lose its answer to this call.")


class Stall(Tapped):
    """The n-th call hangs until `release`, then does its work: a caller that slept through its lease."""

    def __init__(self, store: Store, nth: int, bound: float = 30.0) -> None:
        super().__init__(store, nth)
        self._bound = bound
        self._gate = threading.Event()
        self.stalled = threading.Event()

    def _fault(self, verb: Callable[[], T]) -> T:
        self.stalled.set()
        if not self._gate.wait(self._bound):
            raise StoreUnavailable("The stalled call was never released.")
        return verb()

    def release(self) -> None:
        """Let the stalled call go on."""
        self._gate.set()


class AsyncTapped(ABC):
    """See Tapped."""

    def __init__(self, store: AsyncStore, nth: int) -> None:
        self._store = store
        self._nth = nth
        self.calls = 0

    @property
    def struck(self) -> bool:
        """Whether the call to fail has come."""
        return self.calls >= self._nth

    async def _call(self, verb: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        return await (self._fault(verb) if self.calls == self._nth else verb())

    @abstractmethod
    async def _fault(self, verb: Callable[[], Awaitable[T]]) -> T:
        """What the call that is due meets."""

    async def read(self, key: Key) -> Seen:
        """See Store.read."""
        return await self._call(lambda: self._store.read(key))

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap."""
        return await self._call(lambda: self._store.swap(expected, draft))

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """See Store.sweep."""
        return await self._call(lambda: self._store.sweep(limit, older_than))

    async def find(self, query: Query) -> list[Record]:
        """See Store.find."""
        return await self._call(lambda: self._store.find(query))

    async def migrate(self) -> str:
        """See Store.migrate."""
        return await self._store.migrate()

    def joined(self, connection: Any, *args: Any, **options: Any) -> AsyncStore:
        """See Store.joined."""
        return self._store.joined(connection, *args, **options)

    async def close(self) -> None:
        """See Store.close."""
        await self._store.close()


class AsyncFailBefore(AsyncTapped):
    """See FailBefore."""

    async def _fault(self, verb: Callable[[], Awaitable[T]]) -> T:
        raise StoreUnavailable("The store was made to fail before this call.")


class AsyncFailAfter(AsyncTapped):
    """See FailAfter."""

    async def _fault(self, verb: Callable[[], Awaitable[T]]) -> T:
        await verb()
        raise StoreUncertain("The store was made to lose its answer to this call.")


class AsyncStall(AsyncTapped):
    """See Stall."""

    def __init__(self, store: AsyncStore, nth: int, bound: float = 30.0) -> None:
        super().__init__(store, nth)
        self._bound = bound
        self._gate = asyncio.Event()
        self.stalled = asyncio.Event()

    async def _fault(self, verb: Callable[[], Awaitable[T]]) -> T:
        self.stalled.set()
        async with asyncio.timeout(self._bound):
            await self._gate.wait()
        return await verb()

    def release(self) -> None:
        """Let the stalled call go on."""
        self._gate.set()
