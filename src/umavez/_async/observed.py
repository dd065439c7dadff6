"""AsyncObservedStore: a store that tells how long each of its answers took, and of each that did not come."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.engine.observing import Observers, name_of, shaped
from umavez.errors import StoreError
from umavez.stores import AsyncStore

T = TypeVar("T")


def async_observed(store: AsyncStore, observers: Observers) -> AsyncStore:
    """`store` as it is where nobody wants to hear of its answers, or somebody hears of them already."""
    if not observers.clerks or isinstance(store, AsyncObservedStore):
        return store
    made: AsyncStore = shaped(AsyncObservedStore, type(store))(store, observers)
    return made


class AsyncObservedStore:
    """Does what `plain` does, and tells `observers`. Whatever else `plain` has, it has too."""

    def __init__(self, plain: AsyncStore, observers: Observers, name: str = "", prefix: str = "") -> None:
        self.plain = plain
        self._observers = observers
        self._name = name or name_of(plain)
        self._prefix = prefix

    async def read(self, key: Key) -> Seen:
        """See AsyncStore.read."""
        return await self._asked("read", self.plain.read, key)

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See AsyncStore.swap."""
        return await self._asked("swap", self.plain.swap, expected, draft)

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """See AsyncStore.sweep."""
        return await self._asked("sweep", self.plain.sweep, limit, older_than)

    async def find(self, query: Query) -> list[Record]:
        """See AsyncStore.find."""
        return await self._asked("find", self.plain.find, query)

    async def migrate(self) -> str:
        """See AsyncStore.migrate."""
        return await self._asked("migrate", self.plain.migrate)

    def joined(self, connection: Any, wait: float = 10.0) -> AsyncStore:
        """See AsyncStore.joined. What is asked there is told apart: it may wait for a rival's transaction."""
        plain = self.plain.joined(connection, wait)
        made: AsyncStore = shaped(AsyncObservedStore, type(plain))(plain, self._observers, self._name, "joined_")
        return made

    async def close(self) -> None:
        """See AsyncStore.close."""
        await self.plain.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    async def _asked(self, verb: str, ask: Callable[..., Awaitable[T]], *words: Any) -> T:
        began = time.perf_counter()
        try:
            answer = await ask(*words)
        except StoreError as error:
            self._observers.record_answer(self._name, self._prefix + verb, time.perf_counter() - began, error)
            raise
        self._observers.record_answer(self._name, self._prefix + verb, time.perf_counter() - began, None)
        return answer
