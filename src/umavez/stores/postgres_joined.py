"""The PostgreSQL store inside the caller's transaction.

Nothing here commits or rolls back. A rival's uncommitted claim of the same key is waited for by asking again after
growing pauses, never by blocking in the server, so that the caller's transaction stays usable when `wait` is over.
Under READ COMMITTED the next asking sees what the rival committed; under REPEATABLE READ it cannot, and the whole
transaction has to be run again (StoreUnavailable says so).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from umavez.clock import Clock
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import ConfigurationError, OperationInProgress
from umavez.stores import postgres_sql as sql
from umavez.stores.postgres_errors import RETRY_AFTER, failed_joined, is_lost
from umavez.stores.postgres_link import Row
from umavez.stores.postgres_passage import passing, prepared
from umavez.stores.postgres_queries import asks_time, found, looking, seen
from umavez.stores.postgres_values import adapt, inserting, reply_of, updating

WAIT = 10.0
"""Seconds that a claim waits for a rival's open transaction."""


class JoinedPostgresStore:
    """Swaps in the caller's transaction, on the caller's thread."""

    def __init__(self, connection: Connection[Any], clock: Clock, wait: float = WAIT) -> None:
        self._connection = connection
        self._clock = clock
        self._wait = wait

    def read(self, key: Key) -> Seen:
        """What stands under `key`, as this transaction sees it."""
        return seen(key, self._rows(sql.SEEN, (self._clock.offset, key.digest), key))

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap. Raises OperationInProgress when a rival's transaction stays open for longer than `wait`."""
        swap = Swap(expected, draft)
        text, values = _statement(swap, self._clock.offset)
        for pause in _pauses(self._wait):
            for row in self._rows(text, values, draft.key):
                return reply_of(draft.key, row)
            time.sleep(pause)
        raise OperationInProgress(draft.key, RETRY_AFTER)

    def find(self, query: Query) -> list[Record]:
        """The records that match, as this transaction sees them, oldest first."""
        now = self._rows(sql.TIME, (self._clock.offset,))[0][0] if asks_time(query) else 0
        return found(self._rows(*looking(query, now)))

    def _rows(self, text: str, values: tuple[Any, ...], key: Key | None = None) -> list[Row]:
        connection = self._connection
        _check_open(connection)
        try:
            name = prepared(connection, text, len(values))
            if name is not None:
                with connection.lock:
                    return connection.wait(passing(connection, name, values))
            cursor = RawCursor(connection, row_factory=tuple_row)
            adapt(cursor)
            return cursor.execute(text, values, prepare=True, binary=True).fetchall()
        except (psycopg.Error, UnicodeEncodeError) as error:
            raise failed_joined(error, is_lost(error, connection), key) from error

    def sweep(self, limit: int, older_than: Millis = 0) -> NoReturn:
        """Refused; see `refuse`."""
        refuse("sweep")

    def migrate(self) -> NoReturn:
        """Refused; see `refuse`."""
        refuse("migrate")

    def joined(self, connection: Any, wait: float = WAIT) -> NoReturn:
        """Refused; see `refuse`."""
        refuse("join another transaction")

    def close(self) -> None:
        """Nothing to close: the connection is the caller's."""


class AsyncJoinedPostgresStore:
    """Swaps in the caller's transaction, awaited."""

    def __init__(self, connection: AsyncConnection[Any], clock: Clock, wait: float = WAIT) -> None:
        self._connection = connection
        self._clock = clock
        self._wait = wait

    async def read(self, key: Key) -> Seen:
        """What stands under `key`, as this transaction sees it."""
        return seen(key, await self._rows(sql.SEEN, (self._clock.offset, key.digest), key))

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See JoinedPostgresStore.swap."""
        swap = Swap(expected, draft)
        text, values = _statement(swap, self._clock.offset)
        for pause in _pauses(self._wait):
            for row in await self._rows(text, values, draft.key):
                return reply_of(draft.key, row)
            await asyncio.sleep(pause)
        raise OperationInProgress(draft.key, RETRY_AFTER)

    async def find(self, query: Query) -> list[Record]:
        """The records that match, as this transaction sees them, oldest first."""
        now = (await self._rows(sql.TIME, (self._clock.offset,)))[0][0] if asks_time(query) else 0
        return found(await self._rows(*looking(query, now)))

    async def _rows(self, text: str, values: tuple[Any, ...], key: Key | None = None) -> list[Row]:
        connection = self._connection
        _check_open(connection)
        try:
            name = prepared(connection, text, len(values))
            if name is not None:
                async with connection.lock:
                    return await connection.wait(passing(connection, name, values))
            cursor = AsyncRawCursor(connection, row_factory=tuple_row)
            adapt(cursor)
            return await (await cursor.execute(text, values, prepare=True, binary=True)).fetchall()
        except (psycopg.Error, UnicodeEncodeError) as error:
            raise failed_joined(error, is_lost(error, connection), key) from error

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


def refuse(what: str) -> NoReturn:
    """Raise ConfigurationError: inside somebody's transaction only records are read and swapped."""
    raise ConfigurationError(f"A joined store cannot {what}; use the store it was made from.")


def _statement(swap: Swap, offset: int) -> tuple[str, tuple[Any, ...]]:
    lock = int.from_bytes(swap.draft.key.digest[:8], "big", signed=True)
    if swap.expected is None:
        return sql.JOINED_INSERT, (*inserting(swap, offset), lock)
    return sql.JOINED_UPDATE, (*updating(swap, offset), lock)


def _pauses(wait: float) -> Iterator[float]:
    """Pauses of 1 ms growing to 50 ms, until `wait` seconds are over; at least two askings."""
    end = time.monotonic() + wait
    pause = 0.001
    yield pause
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * 1.5, 0.05)
    yield 0.0


def _check_open(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Without a transaction the claim would stand before the effect, and nothing would roll it back."""
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise ConfigurationError(
            "The connection is in autocommit mode with no open transaction; open one with connection.transaction()."
        )
