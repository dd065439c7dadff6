"""The SQLite store inside the caller's transaction, on a connection whose verbs are awaited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from umavez.clock import Clock
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import ConfigurationError, StoreUnavailable
from umavez.sql.joining import warn_of_parting
from umavez.stores import AsyncStore
from umavez.stores.rows import record_of
from umavez.stores.sqlite.connection import refuse_unsafe_journal
from umavez.stores.sqlite.errors import translated
from umavez.stores.sqlite.joined import (
    BUSY_TIMEOUT,
    DATABASES,
    JOURNAL,
    async_refuse_other_kinds,
    held,
    refuse_other_file,
)
from umavez.stores.sqlite.statements import SELECT, Statements, finding, found, swapping


class AsyncJoinedSqliteStore:
    """The store inside the caller's transaction. It never commits; sweeping and migrating are not its business."""

    def __init__(self, connection: Any, clock: Clock, path: Path, wait: float = 10.0) -> None:
        async_refuse_other_kinds(connection)
        self._connection = connection
        self._clock = clock
        self._path = path
        self._checked = False
        self._wait: float | None = wait

    async def read(self, key: Key) -> Seen:
        """What stands under `key`, as the transaction sees it."""
        await self._check_file()
        row = await self._first(SELECT, (key.digest,))
        return Seen(None if row is None else record_of(key, row), self._clock.now())

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands, in the caller's transaction, which is begun if it was not."""
        if self._wait is None:
            return await self._swap(expected, draft)
        await self._check_file()
        (mode,) = await self._first(JOURNAL)
        refuse_unsafe_journal(mode)
        # The first swap takes the file's one write lock, so only it has to wait for a rival.
        wait, self._wait = self._wait, None
        (usual,) = await self._first(BUSY_TIMEOUT)
        await self._first(f"{BUSY_TIMEOUT} = {int(wait * 1000)}")
        try:
            return await self._swap(expected, draft)
        except StoreUnavailable as error:
            raise held(error, draft.key) from error.__cause__
        finally:
            await self._first(f"{BUSY_TIMEOUT} = {usual}")

    async def _check_file(self) -> None:
        if not self._checked:
            refuse_other_file(await self._every(DATABASES), self._path)
            self._checked = True

    async def _swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        if not self._connection.in_transaction:
            if expected is not None:
                warn_of_parting(draft)
            # IMMEDIATE: a transaction that reads first and writes later can be refused without waiting.
            await self._first("BEGIN IMMEDIATE")
        with translated:
            cursor = await self._tuples()
            try:
                return await carry_out(cursor, swapping(Swap(expected, draft), self._clock.now()))
            finally:
                await cursor.close()

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Refused: sweeping belongs to the store itself."""
        raise ConfigurationError("A joined store does not sweep; call sweep() on the engine.")

    async def find(self, query: Query) -> list[Record]:
        """The records that match, as the transaction sees them."""
        return [found(row) for row in await self._every(*finding(query, self._clock.now()))]

    async def migrate(self) -> str:
        """Refused: migrating belongs to the store itself."""
        raise ConfigurationError("A joined store does not migrate; call migrate() on the engine.")

    def joined(self, connection: Any, wait: float = 10.0) -> AsyncStore:
        """Another joined store."""
        return AsyncJoinedSqliteStore(connection, self._clock, self._path, wait)

    async def close(self) -> None:
        """Nothing: the connection is the caller's."""

    async def _tuples(self) -> Any:
        """A cursor whose rows are tuples, whatever the caller makes of his own."""
        cursor = await self._connection.cursor()
        cursor.row_factory = None
        return cursor

    async def _first(self, text: str, values: tuple[Any, ...] = ()) -> Any:
        with translated:
            cursor = await self._tuples()
            try:
                await cursor.execute(text, values)
                return await cursor.fetchone()
            finally:
                await cursor.close()

    async def _every(self, text: str, values: tuple[Any, ...] = ()) -> Any:
        with translated:
            cursor = await self._tuples()
            try:
                await cursor.execute(text, values)
                return await cursor.fetchall()
            finally:
                await cursor.close()


async def carry_out(cursor: Any, statements: Statements) -> Swapped | Stale:
    """Execute the statements of a swap one after the other."""
    try:
        text, values = next(statements)
        while True:
            await cursor.execute(text, values)
            answers = cursor.description is not None
            text, values = statements.send(await cursor.fetchone() if answers else cursor.rowcount)
    except StopIteration as done:
        reply: Swapped | Stale = done.value
        return reply
