"""Awaited: a store whose verbs never wait long, for callers who await them."""

from __future__ import annotations

from typing import Any

from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.stores import AsyncStore, Store


class Awaited:
    """The verbs of `store`, called as they are."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, key: Key) -> Seen:
        """See Store.read."""
        return self._store.read(key)

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap."""
        return self._store.swap(expected, draft)

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """See Store.sweep."""
        return self._store.sweep(limit, older_than)

    async def find(self, query: Query) -> list[Record]:
        """See Store.find."""
        return self._store.find(query)

    async def migrate(self) -> str:
        """See Store.migrate."""
        return self._store.migrate()

    def joined(self, connection: Any, wait: float = 10.0) -> AsyncStore:
        """See Store.joined."""
        return Awaited(self._store.joined(connection, wait))

    async def close(self) -> None:
        """See Store.close."""
        self._store.close()
