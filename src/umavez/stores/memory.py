"""The memory store: a dict and one lock. The reference; read it first."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record, Status
from umavez.errors import ConfigurationError
from umavez.stores import AsyncStore, Store

_new = tuple.__new__  # as in core/drafts.py, and for the same reason


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
            records[digest] = kept(draft, fence, created_at, now)
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
        """The records that match, oldest first."""
        now = self._clock.now()
        with self._lock:
            records = list(self._records.values())
        found = [record for record in records if _matches(record, query, now)]
        return sorted(found, key=lambda record: record.created_at)[: query.limit]

    def migrate(self) -> str:
        """Nothing to create."""
        return "The memory store has no tables."

    def joined(self, connection: Any, wait: float = 10.0) -> NoReturn:
        """Refused: memory has no transactions to join."""
        raise ConfigurationError("The memory store cannot join a transaction; use sqlite:, postgresql: or mariadb:.")

    def close(self) -> None:
        """Nothing to close."""


class AsyncMemoryStore:
    """The memory store for tasks. Its verbs never block, so they are called as they are."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._store = MemoryStore(clock)

    async def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return self._store.read(key)

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands; see Store.swap."""
        return self._store.swap(expected, draft)

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records."""
        return self._store.sweep(limit, older_than)

    async def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        return self._store.find(query)

    async def migrate(self) -> str:
        """Nothing to create."""
        return self._store.migrate()

    def joined(self, connection: Any, wait: float = 10.0) -> NoReturn:
        """Refused: memory has no transactions to join."""
        self._store.joined(connection)

    async def close(self) -> None:
        """Nothing to close."""


def kept(draft: Draft, fence: int, created_at: Instant, now: Instant) -> Record:
    """The record that `draft` becomes when it is written at `now`."""
    lease_until = None if draft.lease is None else now + draft.lease
    expires_at = None if draft.keep is None else now + draft.keep
    # From the fingerprint to the evidence a record says what its draft did, in the same order.
    head = (draft.key, draft.stamp, fence, draft.status, draft.attempt, created_at, now, lease_until, expires_at)
    return _new(Record, head + draft[7:14])


def _matches(record: Record, query: Query, now: Instant) -> bool:
    wanted = (
        (query.scope, record.key.scope),
        (query.operation, record.key.operation),
        (query.value, record.key.value),
        (query.process_instance, record.process_instance),
        (query.status, record.status),
    )
    if any(want is not None and want != have for want, have in wanted):
        return False
    if query.older_than is not None and record.created_at > now - query.older_than:
        return False
    return not query.lapsed or (record.status is Status.PENDING and record.lapsed(now))
