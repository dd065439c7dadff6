"""Lines to SQLite: one thread, because writers of one process only fight for the lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from umavez.aio_threads import TaskThreads
from umavez.errors import SchemaOutdated, StoreError, StoreUnavailable
from umavez.messaging.database import Line
from umavez.sql import Row, Sql
from umavez.sql_flow import SqlFlow, carry
from umavez.stores.sqlite import BUSY_SECONDS, JOURNALS, parsed, refuse_unsafe_journal

T = TypeVar("T")


def opener(url: str) -> Callable[[], Awaitable[Line]]:
    """Opens lines to the file of `url`.

    Raises ConfigurationError for a WAL file on an SQLite that two writers can damage: who appends to the outbox
    writes beside the relay, so such a file needs `?journal=delete`.
    """
    path, journal = parsed(url)

    def connected() -> sqlite3.Connection:
        refuse_unsafe_journal(journal)  # before the file is touched: setting the mode is written into it
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        mode = connection.execute(f"PRAGMA journal_mode = {JOURNALS[journal]}").fetchone()[0]
        connection.execute("PRAGMA synchronous = FULL")
        refuse_unsafe_journal(mode)
        return connection

    async def opened() -> Line:
        thread = TaskThreads(1, "umavez-messages")
        sql = ThreadSql(await thread.run(connected), thread)
        return Line(sql, sql.close, sql.whole)

    return opened


class ThreadSql:
    """Runs statements of an sqlite3 connection in its thread."""

    def __init__(self, connection: sqlite3.Connection, thread: TaskThreads) -> None:
        self._connection = connection
        self._sql = Sql(connection)
        self._thread = thread

    async def rows(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute and fetch every row."""
        return await self._thread.run(self._sql.rows, text, values)

    async def count(self, text: str, values: Sequence[Any] = ()) -> int:
        """Execute; how many rows were written."""
        return await self._thread.run(self._sql.count, text, values)

    async def whole(self, flow: SqlFlow[T]) -> T:
        """What the flow returns, in a transaction that never waits for the event loop.

        Awaited statement by statement, it would hold the file's lock while the loop is busy; and if what keeps the loop
        busy is a handler that waits for that lock, both would stand still.
        """
        return await self._thread.run(self._transacted, flow)

    def _transacted(self, flow: SqlFlow[T]) -> T:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            result = carry(flow, self._sql)
            self._connection.execute("COMMIT")
            return result
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise

    async def close(self) -> None:
        """Close the file once the statement under way, if any, has ended; an open transaction is rolled back."""
        await self._thread.run(self._connection.close)
        self._thread.close()


def meaning(error: Exception) -> StoreError | None:
    """What a driver's error says; None for an error of somebody else."""
    if not isinstance(error, sqlite3.Error):
        return None
    if "no such table" in str(error):
        return SchemaOutdated("The tables of messaging are missing; run: umavez outbox migrate --store URL.")
    return StoreUnavailable(f"SQLite did not take it ({error}); nothing was written, try again.")
