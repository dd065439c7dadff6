"""The SQLite store for tasks: looks and replays on the loop itself, commits in one thread."""

from __future__ import annotations

import inspect
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from umavez.aio_threads import TaskThreads
from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import ConfigurationError
from umavez.stores import AsyncStore
from umavez.stores.grouping import TaskGroup
from umavez.stores.rows import record_of
from umavez.stores.sqlite import JoinedSqliteStore, SqliteLane, SqliteStore, refuse_unsafe_journal, translated
from umavez.stores.sqlite_sql import SELECT, Statements, finding, found, swapping

T = TypeVar("T")


class AsyncSqliteStore:
    """Keeps records in one SQLite file. A look takes microseconds and runs inline; a commit waits for the
    disk and runs in a thread, shared with everybody who comes meanwhile."""

    def __init__(self, path: Path, journal: str = "wal", *, clock: Clock = SYSTEM) -> None:
        self._store = SqliteStore(path, journal, clock=clock)
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._thread = TaskThreads(1, "umavez-sqlite")
        self._group = TaskGroup([_ThreadLane(SqliteLane(self._store.file, self._clock), self._thread)])

    def _begin_anew_after_fork(self) -> None:
        """A forked child has no thread to commit in, and whoever queued belongs to the parent's loop."""
        if self._pid != os.getpid():
            self._begin()

    async def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return self._store.read(key)

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands."""
        self._begin_anew_after_fork()
        stale = self._store.glance(expected, draft)
        return await self._group.swap(Swap(expected, draft)) if stale is None else stale

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records."""
        return await self._elsewhere(self._store.sweep, limit, older_than)

    async def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        return await self._elsewhere(self._store.find, query)

    async def migrate(self) -> str:
        """Create the tables."""
        return await self._elsewhere(self._store.migrate)

    def joined(self, connection: Any, wait: float = 10.0) -> AsyncStore:
        """The same store on the caller's connection: sqlite3's own, or one that is awaited (aiosqlite)."""
        if isinstance(connection, sqlite3.Connection):
            return _Awaited(JoinedSqliteStore(connection, self._store.clock))
        return AsyncJoinedSqliteStore(connection, self._store.clock)

    async def close(self) -> None:
        """Wait for what is under way and close the file."""
        await self._group.close()
        self._thread.close()
        self._store.close()

    async def _elsewhere(self, call: Callable[..., T], *args: Any) -> T:
        self._begin_anew_after_fork()
        return await self._thread.run(call, *args)


class _ThreadLane:
    """A lane whose commits run in a thread. A cancelled caller leaves the commit to finish by itself."""

    def __init__(self, lane: SqliteLane, thread: TaskThreads) -> None:
        self._lane = lane
        self._thread = thread

    async def send(self, batch: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        """Carry out the swaps in one transaction."""
        return await self._thread.run(self._lane.send, batch)

    async def close(self) -> None:
        """The file closes its connections itself."""


class AsyncJoinedSqliteStore:
    """The store on a connection whose `execute` is awaited, inside its transaction."""

    def __init__(self, connection: Any, clock: Clock) -> None:
        if not inspect.iscoroutinefunction(getattr(connection, "commit", None)):
            raise ConfigurationError(
                f"A sqlite: store joins a sqlite3 or aiosqlite connection, not a {type(connection).__name__}."
            )
        self._connection = connection
        self._clock = clock
        self._looked = False

    async def read(self, key: Key) -> Seen:
        """What stands under `key`, as the transaction sees it."""
        row = await self._first(SELECT, (key.digest,))
        return Seen(None if row is None else record_of(key, row), self._clock.now())

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands, in the caller's transaction, which is begun if it was not."""
        if not self._looked:
            refuse_unsafe_journal((await self._first("PRAGMA journal_mode", ()))[0])
            self._looked = True
        if not self._connection.in_transaction:
            await self._first("BEGIN IMMEDIATE", ())
        return await self._carried_out(swapping(Swap(expected, draft), self._clock.now()))

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Refused: sweeping belongs to the store itself."""
        raise ConfigurationError("A joined store does not sweep; call sweep() on the engine.")

    async def find(self, query: Query) -> list[Record]:
        """The records that match, as the transaction sees them."""
        with translated:
            async with self._connection.execute(*finding(query, self._clock.now())) as cursor:
                return [found(row) for row in await cursor.fetchall()]

    async def migrate(self) -> str:
        """Refused: migrating belongs to the store itself."""
        raise ConfigurationError("A joined store does not migrate; call migrate() on the engine.")

    def joined(self, connection: Any, wait: float = 10.0) -> AsyncStore:
        """Another joined store."""
        return AsyncJoinedSqliteStore(connection, self._clock)

    async def close(self) -> None:
        """Nothing: the connection is the caller's."""

    async def _carried_out(self, statements: Statements) -> Swapped | Stale:
        try:
            statement = next(statements)
            while True:
                statement = statements.send(await self._first(*statement))
        except StopIteration as done:
            reply: Swapped | Stale = done.value
            return reply

    async def _first(self, text: str, values: tuple[Any, ...]) -> Any:
        with translated:
            async with self._connection.execute(text, values) as cursor:
                return await cursor.fetchone()


class _Awaited:
    """A joined store on a plain sqlite3 connection, for a caller who awaits it."""

    def __init__(self, store: JoinedSqliteStore) -> None:
        self._store = store

    async def read(self, key: Key) -> Seen:
        """See Store.read."""
        return self._store.read(key)

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap."""
        return self._store.swap(expected, draft)

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """See JoinedSqliteStore.sweep."""
        return self._store.sweep(limit, older_than)

    async def find(self, query: Query) -> list[Record]:
        """See Store.find."""
        return self._store.find(query)

    async def migrate(self) -> str:
        """See JoinedSqliteStore.migrate."""
        return self._store.migrate()

    def joined(self, connection: Any, wait: float = 10.0) -> AsyncStore:
        """Another joined store."""
        return _Awaited(JoinedSqliteStore(connection, SYSTEM))

    async def close(self) -> None:
        """Nothing: the connection is the caller's."""
