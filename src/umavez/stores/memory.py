"""The memory store: a dict and one lock. The reference; read it first."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record, recorded
from umavez.errors import ConfigurationError
from umavez.stores import AsyncStore, Store
from umavez.stores.awaited import Awaited

_new = tuple.__new__
"""Makes a named tuple without its constructor, `_new(Stale, (a, b))` for `Stale(a, b)`; see core/drafts.py.

Here it saves 3 % of a first call and of a replay.
"""


def open_store(_url: str, clock: Clock) -> Store:
    """A new, empty memory store."""
    return MemoryStore(clock)


def open_async_store(_url: str, clock: Clock) -> AsyncStore:
    """A new, empty memory store, awaited."""
    return AsyncMemoryStore(clock)


class MemoryStore:
    """Keeps records for the life of the process. Safe for threads."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[bytes, Record] = {}
        self._fence = 0

    def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return Seen(self._records.get(key.digest), self._clock.now())

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands; see Store.swap."""
        now, digest, records = self._clock.now(), draft.key.digest, self._records
        with self._lock:
            current = records.get(digest)
            if current is None:
                if expected is not None:
                    return Stale(None, now)
                fence = self._fence = self._fence + 1
                created_at = now
            else:
                if current.stamp != expected:
                    return _new(Stale, (current, now))
                if draft.claims:
                    fence = self._fence = self._fence + 1
                else:
                    fence = current.fence
                created_at = now if draft.fresh else current.created_at
            records[digest] = recorded(draft, fence, created_at, now)
        return _new(Swapped, (fence, now))

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records."""
        edge = self._clock.now() - older_than
        with self._lock:
            dead = [digest for digest, record in self._records.items() if record.is_expired(edge)][:limit]
            for digest in dead:
                del self._records[digest]
        return len(dead)

    def find(self, query: Query) -> list[Record]:
        """The records that match, in order."""
        now = self._clock.now()
        with self._lock:
            records = list(self._records.values())
        return query.page(record for record in records if query.matches(record, now))

    def migrate(self) -> str:
        """Nothing to create."""
        return "The memory store has no tables."

    def joined(self, connection: Any, wait: float = 10.0) -> NoReturn:
        """Refused: memory has no transactions to join."""
        raise ConfigurationError("The memory store cannot join a transaction; use sqlite:, postgresql: or mariadb:.")

    def close(self) -> None:
        """Nothing to close."""


class AsyncMemoryStore(Awaited):
    """The memory store for tasks. Its verbs never block, so they are called as they are."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        super().__init__(MemoryStore(clock))
