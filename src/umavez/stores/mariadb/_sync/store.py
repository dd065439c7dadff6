# Written by tools/sync.py from src/umavez/stores/mariadb/_async/store.py: change that, then run `make format`.
"""The MariaDB store for threads; see `umavez.stores.mariadb.store`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from umavez.clock import SYSTEM, Clock
from umavez.concurrency.group_commit import GroupCommit
from umavez.concurrency.pool import Pool
from umavez.concurrency.shelter import sheltered, sheltered_swap
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record
from umavez.core.telling.events import EventDraft, PastEvent, Process
from umavez.core.telling.minutes import Tally, tally_of
from umavez.core.telling.origin import Origin
from umavez.errors import OperationInProgress
from umavez.stores.keeping import Keeping
from umavez.stores.mariadb import events, minutes
from umavez.stores.mariadb import schema as online
from umavez.stores.mariadb._sync.connection import Execute, MariadbConnection
from umavez.stores.mariadb._sync.joined import JoinedMariadbStore
from umavez.stores.mariadb._sync.swaps import MariadbLane
from umavez.stores.mariadb.errors import Blocked
from umavez.stores.mariadb.schema import (
    BEGIN,
    COMMIT,
    FOREIGN,
    GALERA,
    NEWEST,
    PRESENT,
    VERSION,
    WHOLE,
    checked,
    refuse_foreign,
    schema,
    told,
)
from umavez.stores.mariadb.statements import (
    Rows,
    Statement,
    deleting,
    expired,
    finding,
    found,
    reading,
    seen,
    texts_at,
)
from umavez.stores.mariadb.url import Address
from umavez.stores.rows import refuse_long_texts


class MariadbStore:
    """Keeps records in MariaDB, shared by threads, which share `lanes` connections."""

    def __init__(self, address: Address, clock: Clock = SYSTEM) -> None:
        self._address = address
        self._clock = clock
        self._keeping, self._minding = Keeping(), Keeping("The table of minutes is")
        self._lanes = [MariadbLane(address, clock, self._keeping) for _ in range(address.lanes)]
        self._group = GroupCommit(self._lanes, address.timeout)
        self._looks = Pool(partial(MariadbConnection, address), address.lanes, address.timeout)

    @property
    def retries(self) -> int:
        """How often the server refused a swap for a rival's sake (deadlock, lock time-out) and it was sent again."""
        return sum(lane.connection.retries for lane in self._lanes)

    @sheltered
    def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        with self._look() as connection:
            (rows,) = connection.run(reading(texts_at(self._clock.offset), key))
            return seen(key, rows)

    @sheltered_swap
    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands; see Store.swap.

        Raises OperationInProgress while another transaction holds the record uncommitted.
        """
        refuse_long_texts(draft)
        try:
            return self._group.swap(Swap(expected, draft))
        except Blocked as blocked:
            raise OperationInProgress(draft.key, 1.0) from blocked

    @sheltered
    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records, passing over those that are just being changed."""
        texts = texts_at(self._clock.offset)
        keeps = self._keeps()

        def work(execute: Execute) -> int:
            execute(BEGIN)
            (rows,) = execute(expired(texts, limit, older_than))
            if rows and keeps:
                execute(events.sweeping([row[0] for row in rows]))
            gone = execute(deleting(texts, [row[0] for row in rows], older_than)) if rows else [()]
            execute(COMMIT)
            return len(gone[0])

        with self._look() as connection:
            return int(connection.transact(work))

    @sheltered
    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        texts = texts_at(self._clock.offset)
        with self._look() as connection:
            (((now,),),) = connection.run(texts.clock())
            (rows,) = connection.run(finding(query, now))
            return found(rows)

    @sheltered
    def history(self, key: Key) -> list[PastEvent]:
        """The events of `key`, oldest first."""
        return events.found(self._told(events.looking(key)))

    @sheltered
    def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
        """Keep an event that belongs to no swap, a few for each record."""
        self._told(events.remarking(texts_at(self._clock.offset), key, event, attempt, fence, holder))

    @sheltered
    def origin(self, key: Key) -> Origin | None:
        """Where the last claim came from that brought an origin."""
        rows = self._told(events.looking_for_origin(key))
        return Origin.of(rows[0][0]) if rows else None

    @sheltered
    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Put what `process` has counted in the place of what it had; the store's time."""
        texts, minds = texts_at(self._clock.offset), self._minds()
        with self._look() as connection:
            for statement in minutes.tallying(texts, process, span, tallies) if minds else ():
                connection.run(statement)
            (((now,),),) = connection.run(texts.clock())
        return int(now)

    @sheltered
    def tallied(
        self, span: Millis, newer_than: Millis, operation: str | None = None, limit: int = 50_000
    ) -> list[Tally]:
        """What all processes have counted."""
        if not self._minds():
            return []
        statement = minutes.looking(texts_at(self._clock.offset), span, newer_than, operation, limit)
        with self._look() as connection:
            (rows,) = connection.run(statement)
        return sorted(tally_of(row) for row in rows)

    def _minds(self) -> bool:
        there = self._minding.there
        if there is None:
            with self._look() as connection:
                (((found,),),) = connection.run(minutes.MINDS)
            there = self._minding.learn(there=bool(found))
        return there

    @sheltered
    def announce(self, process: Process) -> None:
        """Say that `process` lives."""
        for statement in events.announcing(texts_at(self._clock.offset), process):
            self._told(statement)

    @sheltered
    def processes(self, limit: int = 100) -> list[Process]:
        """The processes that were announced, the last seen first."""
        return [Process(*row) for row in self._told(events.processes(limit))]

    def _told(self, statement: Statement) -> Rows:
        """What a statement about events answers; nothing where their tables are missing."""
        if not self._keeps():
            return ()
        with self._look() as connection:
            results = connection.run(statement)
            return results[0] if results else ()

    def _keeps(self) -> bool:
        there = self._keeping.there
        if there is None:
            with self._look() as connection:
                (((found,),),) = connection.run(events.KEEPS)
            there = self._keeping.learn(there=bool(found))
        return there

    @sheltered
    def migrate(self) -> str:
        """Create or upgrade the tables. Raises SchemaOutdated where a newer version or somebody else made them."""
        with self._look() as connection:
            refuse_foreign(connection.run(FOREIGN))
            (((present,),),) = connection.run(PRESENT)
            before = checked(connection.run(VERSION)) if present else 0
            whole = _whole(connection)
            if not (before == NEWEST and whole):
                (((galera,),),) = connection.run(GALERA)
                for statement in schema(galera=bool(galera)):
                    _made(connection, statement)
            return told(before, checked(connection.run(VERSION)), str(self._address), whole=whole)

    def joined(self, connection: Any, wait: float = 10.0) -> JoinedMariadbStore:
        """The store inside the caller's transaction on a connection of the driver; see Store.joined."""
        return JoinedMariadbStore(connection, self._clock, wait, self._address.database, self._keeping)

    @sheltered
    def close(self) -> None:
        """Close every connection, those in use when their call is over. Safe to repeat; a later use opens new ones."""
        self._group.close()
        self._looks.close()

    @contextmanager
    def _look(self) -> Iterator[MariadbConnection]:
        """A connection for what is not a swap, one of as many as lanes. Raises StoreUnavailable when none is free."""
        connection = self._looks.take()
        try:
            yield connection
        finally:
            self._looks.give_back(connection)


def _made(connection: MariadbConnection, statement: Statement) -> None:
    """Carry out a statement of the schema in a moment in which nobody uses its table. Raises StoreUnavailable.

    Who waits for a table's lock has all callers behind it: rather it steps back and tries again, for a while.
    """
    deadline = time.monotonic() + online.PATIENCE
    while True:
        try:
            connection.run(statement)
            return
        except Blocked as blocked:
            if time.monotonic() > deadline:
                raise online.held_up() from blocked
            time.sleep(online.STEP_BACK)


def _whole(connection: MariadbConnection) -> bool:
    """Whether what the version speaks of is there: somebody may have dropped it."""
    (((whole,),),) = connection.run(WHOLE)
    return bool(whole)
