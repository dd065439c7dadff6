"""The memory store: a dict and one lock. The reference; read it first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn

from umavez.clock import SYSTEM, Clock, Steady
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record, recorded
from umavez.core.telling.events import MOST_EVENTS, MOST_REMARKS, REMARKS, EventDraft, PastEvent, Process, holder_of
from umavez.core.telling.minutes import KEPT, Tally, summed
from umavez.core.telling.origin import Origin
from umavez.errors import ConfigurationError, StoreUnavailable
from umavez.stores import AsyncStore, Store
from umavez.stores.awaited import Awaited

_new = tuple.__new__
"""Makes a named tuple without its constructor, `_new(Stale, (a, b))` for `Stale(a, b)`; see core/drafts.py.

Here it saves 3 % of a first call and of a replay.
"""

INTERRUPTED = "A signal handler interrupted a write to the memory store; nothing was written, call from outside of it."


def open_store(_url: str, clock: Clock) -> Store:
    """A new, empty memory store."""
    return MemoryStore(clock)


def open_async_store(_url: str, clock: Clock) -> AsyncStore:
    """A new, empty memory store, awaited."""
    return AsyncMemoryStore(clock)


class MemoryStore:
    """Keeps records for the life of the process. Safe for threads."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = Steady() if clock is SYSTEM else clock
        # A signal handler may make a call while its own thread is inside: it must not wait for itself.
        self._lock = threading.RLock()
        self._writing = False
        self._records: dict[bytes, Record] = {}
        self._fence = 0
        self._events: dict[bytes, deque[PastEvent]] = {}
        self._processes: dict[str, Process] = {}
        self._minutes: dict[tuple[Millis, str, Instant, str, str], Tally] = {}

    def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return Seen(self._records.get(key.digest), self._clock.now())

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands; see Store.swap."""
        with self._lock:
            if self._writing:
                raise StoreUnavailable(INTERRUPTED)
            self._writing = True
            try:
                return self._swapped(expected, draft)
            finally:
                self._writing = False

    def _swapped(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        now, digest, records = self._clock.now(), draft.key.digest, self._records
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
            if current.origin is not None and draft.origin is None:
                draft = draft._replace(origin=current.origin)
        records[digest] = recorded(draft, fence, created_at, now)
        if draft.event is not None:
            kind, *words = draft.event
            self._keep(digest, PastEvent(now, kind, draft.attempt, fence, holder_of(draft.stamp), *words))
        return _new(Swapped, (fence, now))

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records."""
        edge = self._clock.now() - older_than
        with self._lock:
            if self._writing:
                raise StoreUnavailable(INTERRUPTED)
            self._writing = True
            try:
                dead = [digest for digest, record in self._records.items() if record.is_expired(edge)][:limit]
                for digest in dead:
                    del self._records[digest]
                    self._events.pop(digest, None)
            finally:
                self._writing = False
        return len(dead)

    def find(self, query: Query) -> list[Record]:
        """The records that match, in order."""
        now = self._clock.now()
        with self._lock:
            records = list(self._records.values())
        return query.page(record for record in records if query.matches(record, now))

    def history(self, key: Key) -> list[PastEvent]:
        """The events of `key`, oldest first."""
        with self._lock:
            return list(self._events.get(key.digest, ()))

    def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
        """Keep an event that belongs to no swap, a few for each record."""
        with self._lock:
            kept = sum(past.kind in REMARKS for past in list(self._events.get(key.digest, ())))
            if key.digest in self._records and kept < MOST_REMARKS:
                self._keep(key.digest, PastEvent(self._clock.now(), event.kind, attempt, fence, holder, *event[1:]))

    def origin(self, key: Key) -> Origin | None:
        """Where the last claim came from that brought an origin."""
        record = self._records.get(key.digest)
        return None if record is None else Origin.of(record.origin)

    def _keep(self, digest: bytes, past: PastEvent) -> None:
        self._events.setdefault(digest, deque(maxlen=MOST_EVENTS)).append(past)

    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Put what `process` has counted in the place of what it had; the store's time."""
        now = self._clock.now()
        with self._lock:
            self._minutes.update({(span, process, *tally[:3]): tally for tally in tallies})
            for name in [name for name in list(self._minutes) if name[0] == span and name[2] < now - KEPT[span]]:
                self._minutes.pop(name, None)
        return now

    def tallied(
        self, span: Millis, newer_than: Millis, operation: str | None = None, limit: int = 50_000
    ) -> list[Tally]:
        """What all processes have counted."""
        edge = self._clock.now() - newer_than
        with self._lock:
            kept = list(self._minutes.items())
        wanted = [tally for name, tally in kept if name[0] == span and tally.at >= edge]
        return summed(tally for tally in wanted if operation in (None, tally.operation))[:limit]

    def announce(self, process: Process) -> None:
        """There is but one: this."""
        now = self._clock.now()
        self._processes = {process.prefix: process._replace(age=0, started_at=now - process.age, seen_at=now)}

    def processes(self, limit: int = 100) -> list[Process]:
        """The process that holds what is here."""
        return list(self._processes.values())[:limit]

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
        self._memory = MemoryStore(clock)
        super().__init__(self._memory)

    async def history(self, key: Key) -> list[PastEvent]:
        """See Chronicle.history."""
        return self._memory.history(key)

    async def origin(self, key: Key) -> Origin | None:
        """See Provenance.origin."""
        return self._memory.origin(key)

    async def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
        """See Chronicle.remark."""
        self._memory.remark(key, event, attempt, fence, holder)

    async def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """See Tallies.tally."""
        return self._memory.tally(process, span, tallies)

    async def tallied(
        self, span: Millis, newer_than: Millis, operation: str | None = None, limit: int = 50_000
    ) -> list[Tally]:
        """See Tallies.tallied."""
        return self._memory.tallied(span, newer_than, operation, limit)

    async def announce(self, process: Process) -> None:
        """See Chronicle.announce."""
        self._memory.announce(process)

    async def processes(self, limit: int = 100) -> list[Process]:
        """See Chronicle.processes."""
        return self._memory.processes(limit)
