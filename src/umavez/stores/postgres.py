"""The PostgreSQL store (psycopg 3): postgresql://user:password@host:port/database?lanes=2.

`lanes` is the number of connections that carry swaps (one more, opened when needed, does the looking and sweeping);
every other parameter of the URL is libpq's. A swap that meets a transaction which holds its key waits at most 0.8 s and
then raises OperationInProgress. The account needs SELECT, INSERT, UPDATE, DELETE on idempotency_records and USAGE on
the sequence umavez_fence; only `migrate` needs CREATE.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import ConfigurationError
from umavez.stores import postgres_sql as sql
from umavez.stores.grouping import TaskGroup, ThreadGroup
from umavez.stores.postgres_errors import failed, is_lost, not_reached
from umavez.stores.postgres_joined import WAIT, AsyncJoinedPostgresStore, JoinedPostgresStore
from umavez.stores.postgres_lanes import AsyncPostgresLane, PostgresLane
from umavez.stores.postgres_link import AsyncLink, Link
from umavez.stores.postgres_queries import asks_time, check_known, found, looking, migrated, schema, seen
from umavez.stores.postgres_target import target_of

SWEPT = 1000
"""Records deleted by one statement: its locks are held for a few milliseconds."""

_new = tuple.__new__  # as in core/drafts.py, and for the same reason
_INHERITED: list[object] = []
"""Connections of a parent process. Kept, so that nothing closes them: closing would end the parent's session."""


def open_store(url: str, clock: Clock) -> PostgresStore:
    """The store at `url`, not yet connected. Raises ConfigurationError when the URL is wrong."""
    return PostgresStore(url, clock)


def open_async_store(url: str, clock: Clock) -> AsyncPostgresStore:
    """The store at `url`, awaited."""
    return AsyncPostgresStore(url, clock)


class PostgresStore:
    """Records in PostgreSQL, shared by threads."""

    def __init__(self, url: str, clock: Clock = SYSTEM) -> None:
        self._target = target_of(url)
        self._clock = clock
        self._begin()
        _STORES.add(self)

    def _begin(self) -> None:
        self._lanes = [PostgresLane(self._target.conninfo, self._clock) for _ in range(self._target.lanes)]
        self._group = ThreadGroup(self._lanes)
        self._desk = Link(self._target.conninfo)
        self._at_desk = threading.Lock()

    def begin_anew(self) -> None:
        """What a forked child does: the sockets are the parent's, and so may be the locks."""
        _INHERITED.extend([self._desk.forget(), *(lane.link.forget() for lane in self._lanes)])
        self._begin()

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap. Concurrent callers share statements and commits."""
        return self._group.swap(_new(Swap, (expected, draft)))

    def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return seen(key, self._ask(sql.SEEN, self._clock.offset, key.digest))

    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        now = self._ask(sql.TIME, self._clock.offset)[0][0] if asks_time(query) else 0
        text, values = looking(query, now)
        return found(self._ask(text, *values))

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records, a thousand at a time, passing over those that somebody holds."""
        swept = 0
        while swept < limit:
            most = min(SWEPT, limit - swept)
            ((count,),) = self._ask(sql.SWEEP, self._clock.offset, older_than, most)
            swept += count
            if count < most:
                break
        return swept

    def _ask(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._at_desk:
            return self._desk.rows(text, values)

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
        """The store inside the transaction of a psycopg.Connection; a rival's claim is waited for `wait` seconds."""
        if not isinstance(connection, Connection):
            raise ConfigurationError(f"joined() takes a psycopg.Connection here, not {type(connection).__name__}.")
        return JoinedPostgresStore(connection, self._clock, wait)

    def close(self) -> None:
        """Close every connection. A later use opens new ones."""
        self._group.close()
        with self._at_desk:
            self._desk.close()


class AsyncPostgresStore:
    """Records in PostgreSQL, shared by the tasks of one loop."""

    def __init__(self, url: str, clock: Clock = SYSTEM) -> None:
        self._target = target_of(url)
        self._clock = clock
        self._begin()
        _STORES.add(self)

    def _begin(self) -> None:
        self._lanes = [AsyncPostgresLane(self._target.conninfo, self._clock) for _ in range(self._target.lanes)]
        self._group = TaskGroup(self._lanes)
        self._desk = AsyncLink(self._target.conninfo)
        self._at_desk = asyncio.Lock()

    def begin_anew(self) -> None:
        """See PostgresStore."""
        _INHERITED.extend([self._desk.forget(), *(lane.link.forget() for lane in self._lanes)])
        self._begin()

    def swap(self, expected: str | None, draft: Draft) -> Coroutine[Any, Any, Swapped | Stale]:
        """See Store.swap. Concurrent callers share statements and commits."""
        return self._group.swap(_new(Swap, (expected, draft)))  # not awaited here: one coroutine less for each swap

    async def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return seen(key, await self._ask(sql.SEEN, self._clock.offset, key.digest))

    async def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        now = (await self._ask(sql.TIME, self._clock.offset))[0][0] if asks_time(query) else 0
        text, values = looking(query, now)
        return found(await self._ask(text, *values))

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """See PostgresStore.sweep."""
        swept = 0
        while swept < limit:
            most = min(SWEPT, limit - swept)
            ((count,),) = await self._ask(sql.SWEEP, self._clock.offset, older_than, most)
            swept += count
            if count < most:
                break
        return swept

    async def _ask(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        async with self._at_desk:
            return await self._desk.rows(text, values)

    async def migrate(self) -> str:
        """See PostgresStore.migrate."""
        try:
            connection = await AsyncConnection.connect(self._target.conninfo)
        except psycopg.Error as error:
            raise not_reached(error) from error
        async with connection:
            try:
                return await _amigrate(connection)
            except psycopg.Error as error:
                raise failed(error, is_lost(error, connection)) from error

    def joined(self, connection: Any, wait: float = WAIT) -> AsyncJoinedPostgresStore:
        """The store inside the transaction of a psycopg.AsyncConnection; see PostgresStore.joined."""
        if not isinstance(connection, AsyncConnection):
            raise ConfigurationError(f"joined() takes a psycopg.AsyncConnection here, not {type(connection).__name__}.")
        return AsyncJoinedPostgresStore(connection, self._clock, wait)

    async def close(self) -> None:
        """Close every connection. A later use opens new ones."""
        await self._group.close()
        async with self._at_desk:
            await self._desk.close()


_STORES: weakref.WeakSet[PostgresStore | AsyncPostgresStore] = weakref.WeakSet()


def _begin_all_anew() -> None:
    for store in _STORES:
        store.begin_anew()


os.register_at_fork(after_in_child=_begin_all_anew)


def _migrate(connection: Connection[tuple[Any, ...]]) -> str:
    connection.execute("SET LOCAL lock_timeout = 0")
    connection.execute(sql.MIGRATING)
    (exists,) = connection.execute(sql.META).fetchone() or (False,)
    (before,) = (connection.execute(sql.INSTALLED).fetchone() if exists else None) or (0,)
    check_known(before)
    connection.execute(schema())
    return migrated(before)


async def _amigrate(connection: AsyncConnection[tuple[Any, ...]]) -> str:
    """See `_migrate`."""
    await connection.execute("SET LOCAL lock_timeout = 0")
    await connection.execute(sql.MIGRATING)
    (exists,) = await (await connection.execute(sql.META)).fetchone() or (False,)
    (before,) = (await (await connection.execute(sql.INSTALLED)).fetchone() if exists else None) or (0,)
    check_known(before)
    await connection.execute(schema())
    return migrated(before)
