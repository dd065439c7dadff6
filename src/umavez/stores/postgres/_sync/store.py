# Written by tools/sync.py from src/umavez/stores/postgres/_async/store.py: change that, then run `make format`.
"""The PostgreSQL store for threads; see `umavez.stores.postgres.store`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import psycopg
from psycopg import Connection

from umavez.clock import SYSTEM, Clock
from umavez.concurrency.after_fork import reset_after_fork
from umavez.concurrency.group_commit import GroupCommit
from umavez.concurrency.pool import Pool
from umavez.concurrency.shelter import sheltered, sheltered_swap
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record
from umavez.core.telling.events import MOST_EVENTS, MOST_REMARKS, EventDraft, PastEvent, Process
from umavez.core.telling.minutes import KEPT, Tally, flat, tally_of
from umavez.core.telling.origin import Origin
from umavez.errors import ConfigurationError
from umavez.stores.keeping import FORGOTTEN, Keeping
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres._sync.connection import PostgresConnection
from umavez.stores.postgres._sync.joined import JoinedPostgresStore
from umavez.stores.postgres._sync.swaps import PostgresLane
from umavez.stores.postgres._sync.upgrade import between_transactions, upgraded
from umavez.stores.postgres.errors import failed, is_lost, not_reached
from umavez.stores.postgres.joined import WAIT
from umavez.stores.postgres.queries import asks_time, check_known, found, looking, migrated, schema, seen
from umavez.stores.postgres.url import target_of
from umavez.stores.postgres.values import Row, parameters

SWEPT = 1000
"""Records deleted by one statement: its locks are held for a few milliseconds."""

_new = tuple.__new__  # see core/drafts.py, where its gain is told
_INHERITED: list[object] = []
"""Lanes of a parent process. Kept, so that nothing closes them: closing would end the parent's session."""


class PostgresStore:
    """Records in PostgreSQL, shared by threads."""

    def __init__(self, url: str, clock: Clock = SYSTEM) -> None:
        self._target = target_of(url)
        self._clock = clock
        self._looks = Pool(partial(PostgresConnection, self._target), 1, self._target.timeout)
        self._keeping, self._minding = Keeping(), Keeping("The table of minutes is")
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        self._lanes = [PostgresLane(self._target, self._clock, self._keeping) for _ in range(self._target.lanes)]
        self._group = GroupCommit(self._lanes, self._target.timeout)

    def reset(self) -> None:
        """What a forked child does: the sockets are the parent's."""
        _INHERITED.extend(self._lanes)
        self._begin()

    @sheltered_swap
    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap. Concurrent callers share statements and commits."""
        return self._group.swap(_new(Swap, (expected, draft)))  # no coroutine of its own: one less for each swap

    @sheltered
    def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return seen(key, self._ask(sql.SEEN, self._clock.offset, key.digest))

    @sheltered
    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        now = 0
        if asks_time(query):
            ((now,),) = self._ask(sql.TIME, self._clock.offset)
        text, values = looking(query, now)
        return found(self._ask(text, *values))

    @sheltered
    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records, a thousand at a time, passing over those that somebody holds."""
        swept = 0
        text = sql.SWEEP_TELLING if self._keeps() else sql.SWEEP
        while swept < limit:
            most = min(SWEPT, limit - swept)
            ((count,),) = self._ask(text, self._clock.offset, older_than, most)
            swept += count
            if count < most:
                break
        return swept

    @sheltered
    def history(self, key: Key) -> list[PastEvent]:
        """The events of `key`, oldest first."""
        if not self._keeps():
            return []
        return [PastEvent(*row) for row in self._ask(sql.HISTORY, key.digest, MOST_EVENTS)]

    @sheltered
    def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
        """Keep an event that belongs to no swap, a few for each record."""
        if self._keeps():
            words = (self._clock.offset, key.digest, event.kind, attempt, fence, holder, *event[1:], MOST_REMARKS)
            self._ask(sql.REMARK, *words)

    @sheltered
    def origin(self, key: Key) -> Origin | None:
        """Where the last claim came from that brought an origin."""
        rows = self._ask(sql.ORIGIN, key.digest) if self._keeps() else ()
        return Origin.of(rows[0][0]) if rows else None

    @sheltered
    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Put what `process` has counted in the place of what it had; the store's time."""
        if not self._minds():
            ((now,),) = self._ask(sql.TIME, self._clock.offset)
        else:
            words = (self._clock.offset, span, process, json.dumps(flat(tallies)), KEPT[span])
            ((now,),) = self._ask(sql.TALLY, *words)
        return int(now)

    @sheltered
    def tallied(
        self, span: Millis, newer_than: Millis, operation: str | None = None, limit: int = 50_000
    ) -> list[Tally]:
        """What all processes have counted."""
        if not self._minds():
            return []
        words = (self._clock.offset, span, newer_than, operation, limit)
        return sorted(tally_of(row) for row in self._ask(sql.TALLIED, *words))

    def _minds(self) -> bool:
        there = self._minding.there
        if there is None:
            ((there,),) = self._ask(sql.MINDS)
            self._minding.learn(there=there)
        return there

    @sheltered
    def announce(self, process: Process) -> None:
        """Say that `process` lives."""
        if self._keeps():
            self._ask(sql.ANNOUNCE, self._clock.offset, *process[:6], FORGOTTEN)

    @sheltered
    def processes(self, limit: int = 100) -> list[Process]:
        """The processes that were announced, the last seen first."""
        if not self._keeps():
            return []
        return [Process(*row) for row in self._ask(sql.PROCESSES, limit)]

    def _keeps(self) -> bool:
        there = self._keeping.there
        if there is None:
            ((there,),) = self._ask(sql.KEEPS)
            self._keeping.learn(there=there)
        return there

    def _ask(self, text: str, *values: Any) -> list[Row]:
        connection = self._looks.take()
        try:
            return connection.rows(text, parameters(values))
        finally:
            self._looks.give_back(connection)

    @sheltered
    def migrate(self) -> str:
        """Create the tables, or say that they stand. Raises SchemaOutdated when they are newer than this version."""
        try:
            connection = Connection.connect(self._target.conninfo)
        except psycopg.Error as error:
            raise not_reached(error) from error
        with connection:
            try:
                return _migrate(connection)
            except psycopg.Error as error:
                raise failed(error, is_lost(error, connection)) from error

    def joined(self, connection: Any, wait: float = WAIT) -> JoinedPostgresStore:
        """The store in the transaction of a psycopg.Connection; a rival's claim is waited for `wait` seconds."""
        if not isinstance(connection, Connection):
            raise ConfigurationError(f"joined() takes a psycopg.Connection here, not {type(connection).__name__}.")
        return JoinedPostgresStore(connection, self._clock, wait, self._target.database, self._keeping)

    @sheltered
    def close(self) -> None:
        """Close every connection, those in use when their call is over. A later use opens new ones."""
        self._group.close()
        self._looks.close()


def _migrate(connection: Connection[Any]) -> str:
    connection.set_autocommit(True)
    found = _version(connection)
    if found == 1:
        upgraded(connection)
    before, whole = between_transactions(partial(_completed, connection))
    return migrated(found if found == 1 else before, whole=whole)


def _completed(connection: Connection[Any]) -> tuple[int, bool]:
    """Make what is missing, for one process at a time; the version that was there before, and whether it was whole."""
    with connection.transaction():
        connection.execute(sql.PATIENCE)
        connection.execute(sql.MIGRATING)
        before = _version(connection)
        check_known(before, foreign=bool(_first(connection, sql.FOREIGN)))
        whole = _first(connection, sql.WHOLE)
        if before < sql.VERSION or not whole:  # else left alone: creating an index that is there locks its table
            connection.execute(schema())
    return before, bool(whole)


def _version(connection: Connection[Any]) -> int:
    """The version of the tables that are there; 0 where there are none."""
    return int((_first(connection, sql.INSTALLED) or 0) if _first(connection, sql.META) else 0)


def _first(connection: Connection[Any], text: str) -> Any:
    """The only value that a statement returns; None where it returns no row."""
    cursor = connection.execute(text)
    row = cursor.fetchone()
    return None if row is None else row[0]
