"""The MariaDB store inside the caller's transaction: its claim and outcome commit with the caller's own work.

Every read that decides locks the row and so sees the newest, whatever the caller's isolation level: a
snapshot from before a rival's commit would show nothing there, for ever.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import asyncmy.errors
import pymysql

from umavez.clock import Clock
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import ConfigurationError, OperationInProgress, StoreError, StoreUnavailable
from umavez.stores.mariadb_faults import CHANGED_SINCE_READ, DEADLOCK, LOCK_TIMEOUT, failed, number
from umavez.stores.mariadb_limits import refuse_long_texts
from umavez.stores.mariadb_lines import ROUNDS, STUBBORN, drained
from umavez.stores.mariadb_sql import Rows, Statement, answer, finding, found, reading, seen, swapping, texts_at

IN_TRANSACTION = 1
"""The bit of the server's status that says a transaction is open."""

WHERE = "the caller's connection"
FAILURES = (pymysql.MySQLError, asyncmy.errors.MySQLError, OSError)


class JoinedMariadbStore:
    """Swaps on the caller's PyMySQL connection. It never commits and never rolls back."""

    def __init__(self, connection: Any, clock: Clock, wait: float) -> None:
        if not isinstance(connection, pymysql.connections.Connection):
            raise ConfigurationError(_not_a_connection(connection, "PyMySQL"))
        self._connection = connection
        self._clock = clock
        self._wait = wait

    def read(self, key: Key) -> Seen:
        """What stands under `key`, as the caller's transaction sees it."""
        return seen(key, self._run(reading(texts_at(self._clock.offset), key))[0])

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands. A rival's uncommitted record is waited for, then OperationInProgress."""
        _ready(self._connection, draft)
        texts = texts_at(self._clock.offset, " FOR UPDATE")
        swap = Swap(expected, draft)
        for round_ in range(ROUNDS):
            statement = _patient(swapping(texts, swap, again=round_ > 0), self._wait)
            reply = answer(swap, self._run(statement, draft.key)[0])
            if reply is not None:
                return reply
        raise StoreUnavailable(STUBBORN)

    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        texts = texts_at(self._clock.offset)
        now = self._run(texts.clock())[0][0][0]
        return found(self._run(finding(texts, query, now))[0])

    def _run(self, statement: Statement, key: Key | None = None) -> list[Rows]:
        try:
            with self._connection.cursor(pymysql.cursors.Cursor) as cursor:
                cursor.execute(statement.text, statement.values)
                return drained(cursor)
        except FAILURES as error:
            raise _meaning(error, key, self._wait) from error

    def sweep(self, limit: int, older_than: Millis = 0) -> NoReturn:
        """Refused: housekeeping does not belong into a caller's transaction."""
        raise ConfigurationError("A joined store does not sweep; call sweep() on the store itself.")

    def migrate(self) -> NoReturn:
        """Refused: CREATE TABLE would commit the caller's transaction."""
        raise ConfigurationError("A joined store does not migrate; call migrate() on the store itself.")

    def joined(self, connection: Any, wait: float = 10.0) -> NoReturn:
        """Refused: it is joined already."""
        raise ConfigurationError("This store is joined already; call joined() on the store itself.")

    def close(self) -> None:
        """Nothing: the connection is the caller's."""


class AsyncJoinedMariadbStore:
    """Swaps on the caller's asyncmy connection; see JoinedMariadbStore."""

    def __init__(self, connection: Any, clock: Clock, wait: float) -> None:
        if not isinstance(connection, asyncmy.connection.Connection):
            raise ConfigurationError(_not_a_connection(connection, "asyncmy"))
        self._connection = connection
        self._clock = clock
        self._wait = wait

    async def read(self, key: Key) -> Seen:
        """What stands under `key`, as the caller's transaction sees it."""
        return seen(key, (await self._run(reading(texts_at(self._clock.offset), key)))[0])

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands; see JoinedMariadbStore.swap."""
        _ready(self._connection, draft)
        texts = texts_at(self._clock.offset, " FOR UPDATE")
        swap = Swap(expected, draft)
        for round_ in range(ROUNDS):
            statement = _patient(swapping(texts, swap, again=round_ > 0), self._wait)
            reply = answer(swap, (await self._run(statement, draft.key))[0])
            if reply is not None:
                return reply
        raise StoreUnavailable(STUBBORN)

    async def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        texts = texts_at(self._clock.offset)
        now = (await self._run(texts.clock()))[0][0][0]
        return found((await self._run(finding(texts, query, now)))[0])

    async def _run(self, statement: Statement, key: Key | None = None) -> list[Rows]:
        try:
            async with self._connection.cursor(asyncmy.cursors.Cursor) as cursor:
                await cursor.execute(statement.text, statement.values)
                return await adrained(cursor)
        except FAILURES as error:
            raise _meaning(error, key, self._wait) from error

    async def sweep(self, limit: int, older_than: Millis = 0) -> NoReturn:
        """Refused: housekeeping does not belong into a caller's transaction."""
        raise ConfigurationError("A joined store does not sweep; call sweep() on the store itself.")

    async def migrate(self) -> NoReturn:
        """Refused: CREATE TABLE would commit the caller's transaction."""
        raise ConfigurationError("A joined store does not migrate; call migrate() on the store itself.")

    def joined(self, connection: Any, wait: float = 10.0) -> NoReturn:
        """Refused: it is joined already."""
        raise ConfigurationError("This store is joined already; call joined() on the store itself.")

    async def close(self) -> None:
        """Nothing: the connection is the caller's."""


async def adrained(cursor: Any) -> list[Rows]:
    """See `drained`."""
    results = []
    more = True
    while more:
        if cursor.description is not None:
            results.append(await cursor.fetchall())
        more = await cursor.nextset()
    return results


def _not_a_connection(given: Any, driver: str) -> str:
    return f"A {type(given).__name__} cannot be joined here; give a connection of {driver}."


def _ready(connection: Any, draft: Draft) -> None:
    """Refuse what could not be undone with the caller's work."""
    refuse_long_texts(draft)
    if connection.get_autocommit() and not connection.server_status & IN_TRANSACTION:
        raise ConfigurationError("The connection has no transaction open; call begin() before joining it.")


def _patient(statement: Statement, wait: float) -> Statement:
    """The statement with its own bound on waiting for locks, in whole seconds as the server counts; 0 does not wait."""
    bound = max(0, math.ceil(wait))
    return Statement(f"SET STATEMENT innodb_lock_wait_timeout = {bound} FOR {statement.text}", statement.values)


def _meaning(error: BaseException, key: Key | None, wait: float) -> StoreError | OperationInProgress:
    code = number(error)
    if code == LOCK_TIMEOUT and key is not None:
        return OperationInProgress(key, max(wait, 1.0))
    if code in (DEADLOCK, CHANGED_SINCE_READ):
        return StoreUnavailable(
            f"MariaDB rolled the whole transaction back (error {code}); roll back and run it again."
        )
    return failed(error, WHERE)
