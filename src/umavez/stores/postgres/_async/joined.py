"""The PostgreSQL store inside the caller's transaction.

Nothing here commits or rolls back. A rival's uncommitted claim of the same key is waited for by asking again after
growing pauses, never by blocking in the server, so that the caller's transaction stays usable when `wait` is over.
Under READ COMMITTED the next asking sees what the rival committed; under REPEATABLE READ it cannot, and the whole
transaction has to be run again (StoreUnavailable says so).
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.rows import tuple_row

from umavez.clock import Clock
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import OperationInProgress
from umavez.stores import refuse_other_database
from umavez.stores.keeping import Keeping, bare, telling
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres.errors import RETRY_AFTER, failed_joined, is_lost
from umavez.stores.postgres.joined import WAIT, check_open, notice, pauses, refuse, swapping
from umavez.stores.postgres.prepared import passing, prepared
from umavez.stores.postgres.queries import asks_time, found, looking, seen
from umavez.stores.postgres.values import Row, adapt, reply_of


class AsyncJoinedPostgresStore:
    """Swaps in the caller's transaction, on the caller's connection."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        clock: Clock,
        wait: float = WAIT,
        database: str = "",
        keeping: Keeping | None = None,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._wait = wait
        # Free: libpq knows it. Of the same name on another server is told by the missing tables, or not at all.
        self._foreign = bool(database) and connection.info.dbname != database
        self._database = database
        self._keeping = keeping or Keeping()

    async def read(self, key: Key) -> Seen:
        """What stands under `key`, as this transaction sees it."""
        return seen(key, await self._rows(sql.SEEN, (self._clock.offset, key.digest), key))

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap. Raises OperationInProgress when a rival's transaction stays open for longer than `wait`."""
        swap = Swap(expected, draft)
        notice(self._connection, swap)
        if telling(draft) and not await self._keeps():
            swap = bare(swap)
        text, values = swapping(swap, self._clock.offset)
        for pause in pauses(self._wait):
            for row in await self._rows(text, values, draft.key):
                return reply_of(draft.key, row)
            await asyncio.sleep(pause)
        raise OperationInProgress(draft.key, RETRY_AFTER)

    async def _keeps(self) -> bool:
        """Whether there are tables for events. Asked, because a statement that fails ends the caller's transaction."""
        there = self._keeping.there
        if there is None:
            ((there,),) = await self._rows(sql.KEEPS, ())
            self._keeping.learn(there=there)
        return there

    async def find(self, query: Query) -> list[Record]:
        """The records that match, as this transaction sees them, oldest first."""
        now = 0
        if asks_time(query):
            ((now,),) = await self._rows(sql.TIME, (self._clock.offset,))
        return found(await self._rows(*looking(query, now)))

    async def _rows(self, text: str, values: tuple[Any, ...], key: Key | None = None) -> list[Row]:
        connection = self._connection
        check_open(connection)
        try:
            if self._foreign:
                await self._refuse_foreign()
            name = prepared(connection, text, len(values))
            if name is not None:
                async with connection.lock:
                    return await connection.wait(passing(connection, name, values))
            cursor = AsyncRawCursor(connection, row_factory=tuple_row)
            adapt(cursor)
            await cursor.execute(text, values, prepare=True, binary=True)
            return await cursor.fetchall()
        except (psycopg.Error, UnicodeEncodeError) as error:
            raise failed_joined(error, is_lost(error, connection), key) from error

    async def _refuse_foreign(self) -> None:
        """Ask the server: behind a pooler a connection may go by another name than its database's."""
        cursor = AsyncRawCursor(self._connection, row_factory=tuple_row)
        await cursor.execute("SELECT current_database()::text")
        ((name,),) = await cursor.fetchall()
        refuse_other_database(name, self._database)
        self._foreign = False

    async def sweep(self, limit: int, older_than: Millis = 0) -> NoReturn:
        """Refused; see `refuse`."""
        refuse("sweep")

    async def migrate(self) -> NoReturn:
        """Refused; see `refuse`."""
        refuse("migrate")

    def joined(self, connection: Any, wait: float = WAIT) -> NoReturn:
        """Refused; see `refuse`."""
        refuse("join another transaction")

    async def close(self) -> None:
        """Nothing to close: the connection is the caller's."""
