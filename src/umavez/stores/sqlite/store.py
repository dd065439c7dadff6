"""The SQLite store: one file, nothing else needed.

One connection writes for the whole process, because several writers in one process only fight for the
lock; callers share its commits. Reads and replays have a connection of their own and touch no lock of
the writer's. `synchronous=FULL`: an outcome that was answered survives a power cut.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from umavez.clock import SYSTEM, Clock
from umavez.concurrency.group_commit import GroupCommit
from umavez.concurrency.shelter import exposed, sheltered, sheltered_swap
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record
from umavez.core.telling.events import MOST_EVENTS, MOST_REMARKS, EventDraft, PastEvent, Process
from umavez.core.telling.minutes import KEPT, Tally, flat, tally_of
from umavez.core.telling.origin import Origin
from umavez.stores import AsyncStore, Store
from umavez.stores.keeping import FORGOTTEN
from umavez.stores.rows import record_of
from umavez.stores.sqlite._sync.joined import JoinedSqliteStore, carry_out
from umavez.stores.sqlite.connection import BUSY_SECONDS, WAL_IS_SAFE, SqliteFile, existing, refuse_unsafe_journal
from umavez.stores.sqlite.statements import (
    ANNOUNCE,
    FORGET_HOLDERS,
    FORGET_MINUTES,
    HISTORY,
    KEEPS,
    LAST_FENCE,
    MINDS,
    NEXT_FENCES,
    ORIGIN,
    PROCESSES,
    REMARK,
    REMARKED,
    SELECT,
    SWEEP,
    SWEEP_EVENTS,
    TALLIED,
    TALLY,
    VERSION,
    Statement,
    event_values,
    fenced,
    finding,
    found,
    looking,
    standing,
    swapping,
)
from umavez.stores.sqlite.turns import busy_seconds
from umavez.stores.sqlite.url import JOURNALS, parsed

_new = tuple.__new__  # see core/drafts.py, where its gain is told

# Those who open files of their own find here what they need.
__all__ = [
    "BUSY_SECONDS",
    "JOURNALS",
    "WAL_IS_SAFE",
    "SqliteLane",
    "SqliteStore",
    "open_async_store",
    "open_reader",
    "open_store",
    "parsed",
    "refuse_unsafe_journal",
]


def open_store(url: str, clock: Clock) -> Store:
    """The store in the file that `url` names: sqlite:///relative.db, sqlite:////absolute.db[?journal=delete&timeout=5]."""
    return SqliteStore(*parsed(url), clock=clock, timeout=busy_seconds(url, BUSY_SECONDS))


def open_reader(url: str, clock: Clock) -> Store:
    """The same for those who only look: the file must be there, and nothing in it is changed."""
    timeout = busy_seconds(url, BUSY_SECONDS)
    return SqliteStore(*parsed(existing(url)), clock=clock, timeout=timeout, read_only=True)


def open_async_store(url: str, clock: Clock) -> AsyncStore:
    """The same for tasks."""
    from umavez.stores.sqlite.async_store import AsyncSqliteStore  # noqa: PLC0415  # it builds on this module

    return AsyncSqliteStore(*parsed(url), clock=clock, timeout=busy_seconds(url, BUSY_SECONDS))


class SqliteStore:
    """Keeps records in one SQLite file. Shared by threads; several processes may use the file."""

    def __init__(
        self,
        path: Path,
        journal: str = "wal",
        *,
        clock: Clock = SYSTEM,
        timeout: float | None = None,
        read_only: bool = False,
    ) -> None:
        self.file = SqliteFile(path, journal, BUSY_SECONDS if timeout is None else timeout, read_only=read_only)
        self.clock = clock
        self._group = GroupCommit([SqliteLane(self.file, clock)], self.file.timeout)

    def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return self._look_apart(key) if exposed() else self.look(key)

    def look(self, key: Key) -> Seen:
        """`read`, where no handler of a signal makes calls of its own; see SqliteFile.first."""
        row = self.file.first(SELECT, (key.digest,))
        return Seen(None if row is None else record_of(key, row), self.clock.now())

    # A look leaves nothing half done, but it holds a lock. The call of a handler that interrupts it is made by the
    # shelter's thread, and would wait there for that lock until its time is over.
    _look_apart = sheltered(look)

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands; a replay reads and takes no write lock."""
        if exposed():
            return self._swap_apart(expected, draft)
        stale = self.glance(expected, draft)
        return self._carry(expected, draft) if stale is None else stale

    @sheltered
    def _swap_apart(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        stale = self.glance(expected, draft)
        return self._group.swap(_new(Swap, (expected, draft))) if stale is None else stale

    @sheltered_swap
    def _carry(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        return self._group.swap(_new(Swap, (expected, draft)))

    def glance(self, expected: str | None, draft: Draft) -> Stale | None:
        """Stale when a look already shows that the swap is too late: no write transaction is needed to know it."""
        if expected is not None:
            return None
        row = self.file.glance(looking(draft), (draft.key.digest,))
        return None if row is None else _new(Stale, (standing(draft, row), self.clock.now()))

    @sheltered
    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records."""
        edge = self.clock.now() - older_than

        def work(connection: sqlite3.Connection) -> int:
            connection.execute(SWEEP_EVENTS, (edge, limit))
            return connection.execute(SWEEP, (edge, limit)).rowcount

        return self.file.write(work)

    @sheltered
    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        return [found(row) for row in self.file.every(*finding(query, self.clock.now()))]

    @sheltered
    def history(self, key: Key) -> list[PastEvent]:
        """The events of `key`, oldest first."""
        if not self._keeps():
            return []
        return [PastEvent(*row) for row in self.file.every(HISTORY, (key.digest, MOST_EVENTS))]

    @sheltered
    def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
        """Keep an event that belongs to no swap, a few for each record."""
        if not self._keeps() or self.file.first(REMARKED, (key.digest,))[0] >= MOST_REMARKS:
            return  # seen without the lock of the file: strangers may come often
        values = event_values(key, event, self.clock.now(), attempt, fence, holder)
        self._write((REMARK, (*values, key.digest, key.digest, MOST_REMARKS)))

    @sheltered
    def origin(self, key: Key) -> Origin | None:
        """Where the last claim came from that brought an origin."""
        row = self.file.first(ORIGIN, (key.digest,)) if self._keeps() else None
        return None if row is None else Origin.of(row[0])

    @sheltered
    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Put what `process` has counted in the place of what it had; the store's time."""
        now = self.clock.now()
        if tallies:
            old = (FORGET_MINUTES, (span, span, now - KEPT[span]))
            self._write((TALLY, (span, process, json.dumps(flat(tallies)))), old)
        return now

    @sheltered
    def tallied(
        self, span: Millis, newer_than: Millis, operation: str | None = None, limit: int = 50_000
    ) -> list[Tally]:
        """What all processes have counted."""
        if not self.file.first(MINDS, ())[0]:
            return []  # a file that is only looked at is not brought up to date
        words = (span, self.clock.now() - newer_than, operation, operation, limit)
        return sorted(tally_of(row) for row in self.file.every(TALLIED, words))

    @sheltered
    def announce(self, process: Process) -> None:
        """Say that `process` lives."""
        now = self.clock.now()
        self._write((ANNOUNCE, (*process[:5], now - process.age, now)), (FORGET_HOLDERS, (now - FORGOTTEN,)))

    @sheltered
    def processes(self, limit: int = 100) -> list[Process]:
        """The processes that were announced, the last seen first."""
        return [Process(*row) for row in self.file.every(PROCESSES, (limit,))] if self._keeps() else []

    def _write(self, *statements: Statement) -> None:
        """Execute them in one transaction."""

        def work(connection: sqlite3.Connection) -> None:
            for text, values in statements:
                connection.execute(text, values)

        self.file.write(work)

    def _keeps(self) -> bool:
        """A file that is only looked at is not brought up to date, so its tables may be missing."""
        return bool(self.file.first(KEEPS, ())[0])

    @sheltered
    def migrate(self) -> str:
        """Create the tables; they are also created when the file is first opened."""
        return self.file.write(lambda _: f"The tables in {self.file.path} are at version {VERSION}.")

    def joined(self, connection: Any, wait: float = 10.0) -> Store:
        """The same store on the caller's sqlite3 connection, in its transaction; see Store.joined."""
        return JoinedSqliteStore(connection, self.clock, self.file.path, wait)

    @sheltered
    def close(self) -> None:
        """Close the file."""
        self._group.close()
        self.file.close()


class SqliteLane:
    """Carries batches over the file's writing connection."""

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def send(self, batch: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        """Carry out the swaps in one transaction."""
        return self._file.write(partial(self._carry, batch))

    def _carry(self, batch: Sequence[Swap], connection: sqlite3.Connection) -> Sequence[Swapped | Stale]:
        now = self._clock.now()
        claims = [*map(fenced, batch)]
        many = claims.count(True)
        cursor = connection.cursor()
        try:
            fences = _set_aside(cursor, many) if many else _NONE
            return [
                carry_out(cursor, swapping(swap, now, next(fences) if claim else None, current=True))
                for swap, claim in zip(batch, claims, strict=True)
            ]
        finally:
            # Whatever comes: a statement that was half read would keep its lock on the file.
            cursor.close()

    def close(self) -> None:
        """The file closes its connections itself."""


_NONE: Iterator[int] = iter(())


def _set_aside(cursor: sqlite3.Cursor, many: int) -> Iterator[int]:
    """So many new fences; those that no swap uses are lost."""
    cursor.execute(NEXT_FENCES, (many,))
    (last,) = cursor.execute(LAST_FENCE).fetchone()
    return iter(range(last - many + 1, last + 1))
