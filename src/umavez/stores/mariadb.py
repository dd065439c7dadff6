"""The MariaDB store: PyMySQL for threads, asyncmy for tasks (see `mariadb_tasks.py`)."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import OperationInProgress
from umavez.stores import AsyncStore, Store
from umavez.stores.grouping import ThreadGroup
from umavez.stores.mariadb_address import Address, address_of
from umavez.stores.mariadb_faults import Blocked
from umavez.stores.mariadb_joined import JoinedMariadbStore
from umavez.stores.mariadb_limits import refuse_long_texts
from umavez.stores.mariadb_lines import Line, MariadbLane
from umavez.stores.mariadb_schema import BEGIN, COMMIT, PRESENT, SCHEMA, VERSION, checked, told
from umavez.stores.mariadb_sql import deleting, expired, finding, found, reading, seen, texts_at
from umavez.stores.mariadb_tasks import AsyncMariadbStore

__all__ = ["AsyncMariadbStore", "MariadbStore", "open_async_store", "open_store"]


def open_store(url: str, clock: Clock) -> Store:
    """The store at `url`; connects at first use. Raises ConfigurationError for a URL that names none."""
    return MariadbStore(address_of(url), clock)


def open_async_store(url: str, clock: Clock) -> AsyncStore:
    """The async store at `url`; see `open_store`."""
    return AsyncMariadbStore(address_of(url), clock)


class MariadbStore:
    """Keeps records in MariaDB. Safe for threads, which share `lanes` connections, and across a fork."""

    def __init__(self, address: Address, clock: Clock = SYSTEM) -> None:
        self._address = address
        self._clock = clock
        self._lanes = [MariadbLane(address, clock) for _ in range(address.lanes)]
        self._group = ThreadGroup(self._lanes)
        self._spare: list[Line] = []
        self._lock = threading.Lock()
        _STORES.add(self)

    def forsake(self) -> None:
        """Begin anew in a forked child: a thread that is gone may hold the lock. Lines look after themselves."""
        self._lock = threading.Lock()

    @property
    def retries(self) -> int:
        """How often the server refused a swap for a rival's sake (deadlock, lock time-out) and it was sent again."""
        return sum(lane.line.retries for lane in self._lanes)

    def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        with self._line() as line:
            return seen(key, line.run(reading(texts_at(self._clock.offset), key))[0])

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands; see Store.swap.

        Raises OperationInProgress while another transaction holds the record uncommitted.
        """
        refuse_long_texts(draft)
        try:
            return self._group.swap(Swap(expected, draft))
        except Blocked as blocked:
            raise OperationInProgress(draft.key, 1.0) from blocked

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records, passing over those that are just being changed."""
        texts = texts_at(self._clock.offset)

        def work(execute: Callable[..., Any]) -> int:
            execute(BEGIN)
            digests = [row[0] for row in execute(expired(texts, limit, older_than))[0]]
            gone = len(execute(deleting(texts, digests, older_than))[0]) if digests else 0
            execute(COMMIT)
            return gone

        with self._line() as line:
            return int(line.transact(work))

    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        texts = texts_at(self._clock.offset)
        with self._line() as line:
            now = line.run(texts.clock())[0][0][0]
            return found(line.run(finding(texts, query, now))[0])

    def migrate(self) -> str:
        """Create or upgrade the tables. Raises SchemaOutdated where a newer version made them."""
        with self._line() as line:
            before = checked(line.run(VERSION)) if line.run(PRESENT)[0][0][0] else 0
            for statement in SCHEMA:
                line.run(statement)
            return told(before, checked(line.run(VERSION)), str(self._address))

    def joined(self, connection: Any, wait: float = 10.0) -> JoinedMariadbStore:
        """The store inside the caller's transaction on a PyMySQL connection; see Store.joined."""
        return JoinedMariadbStore(connection, self._clock, wait)

    def close(self) -> None:
        """Close every connection. Safe to repeat; a later use opens them again."""
        self._group.close()
        with self._lock:
            spare, self._spare = self._spare, []
        for line in spare:
            line.drop()

    @contextmanager
    def _line(self) -> Iterator[Line]:
        """A connection for what is not a swap, kept for the next time."""
        with self._lock:
            line = self._spare.pop() if self._spare else Line(self._address)
        try:
            yield line
        finally:
            with self._lock:
                kept = len(self._spare) < self._address.lanes
                if kept:
                    self._spare.append(line)
            if not kept:
                line.drop()


_STORES: weakref.WeakSet[MariadbStore] = weakref.WeakSet()


def _forsake_all() -> None:
    for store in _STORES:
        store.forsake()


os.register_at_fork(after_in_child=_forsake_all)
