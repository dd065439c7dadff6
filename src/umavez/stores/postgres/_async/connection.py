"""A connection of the PostgreSQL store's own, for tasks.

It is in autocommit and READ COMMITTED, and speaks libpq's prepared statements itself: the short path of a cursor costs
four times the work. After any error, interruption or cancellation it drops its session and opens another at the next
use. A session that was in use before may have died while it was idle, so a statement that got no answer on it is sent
once more on a new one: a swap that was done all the same is recognised by its stamp.

A server that is silent for longer than the time-out loses the session too, and the call is not sent again.

Behind PgBouncer this needs `ignore_startup_parameters = options` and a lock_timeout of the account's own, which is
looked for when a session is opened. In transaction mode `max_prepared_statements` (1.21) keeps statements prepared;
without it they are sent whole as soon as one is found to be missing, which costs the server a plan each time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.adapt import Transformer
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName
from psycopg.pq.abc import PGconn, PGresult

from umavez.core.key import Key
from umavez.errors import StoreError, StoreUncertain, UmavezError
from umavez.stores.postgres.errors import GRACE, failed, is_lost, lock_timeout_dropped, not_reached
from umavez.stores.postgres.readiness import AsyncReadiness
from umavez.stores.postgres.url import Target
from umavez.stores.postgres.values import BINARY, Row, Values, checked, loaded, name_of


class AsyncPostgresConnection:
    """Runs statements, for one caller at a time. It repairs itself."""

    def __init__(self, target: Target) -> None:
        self._conninfo = target.conninfo
        self._patience = target.timeout + GRACE
        self._session: AsyncSession | None = None
        self._prepares = True

    async def rows(self, text: str, values: Values, key: Key | None = None) -> list[Row]:
        """The rows that a statement returns. Raises StoreError, or what `failed` makes of an error about `key`.

        `values` are as they are sent; see `parameters`.
        """
        used = self._session is not None
        try:
            return await self._run(text, values, key)
        except StoreUncertain as uncertain:
            if not used or uncertain.waited:
                raise
            return await self._again(text, values, key, uncertain)

    async def _again(self, text: str, values: Values, key: Key | None, uncertain: StoreUncertain) -> list[Row]:
        try:
            return await self._run(text, values, key)
        except StoreError:
            # Whatever stopped the second sending, the first may have been done.
            raise uncertain from uncertain.__cause__

    async def _run(self, text: str, values: Values, key: Key | None) -> list[Row]:
        session = self._session or await self._open()
        try:
            if self._prepares:
                try:
                    return await session.execute(text, values)
                except InvalidSqlStatementName:
                    # A pooler has put another server behind the session. Nothing was done; from now on say it all.
                    self._prepares = False
            return await session.say(text, values)
        except psycopg.Error as error:
            failure = session.failure(error, key)
            self.drop()
            raise failure from error
        except BaseException:  # interrupted or cancelled: the answer must not be taken for the next statement's
            self.drop()
            raise

    async def _open(self) -> AsyncSession:
        try:
            connection = await AsyncConnection.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise not_reached(error) from error
        session = self._session = AsyncSession(connection, self._patience)
        try:
            await session.check_lock_timeout()
        except psycopg.Error as error:
            self.drop()
            raise not_reached(error) from error
        except BaseException:
            self.drop()
            raise
        return session

    def drop(self) -> None:
        """Close the session at once; the next use opens another."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    async def close(self) -> None:
        """As `drop`: libpq takes leave of the server without waiting."""
        self.drop()

    def __del__(self) -> None:
        if self._session is not None:  # nobody closed it
            self._session.readiness.abandon()


class AsyncSession:
    """An open connection, the statements prepared on it, and how its results are read."""

    def __init__(self, connection: AsyncConnection[Any], patience: float) -> None:
        self.connection = connection
        self.pgconn: PGconn = connection.pgconn
        self.names: dict[str, bytes] = {}
        self.transformer = Transformer(connection)
        self.readiness = AsyncReadiness(connection, patience)

    async def execute(self, text: str, values: Values) -> list[Row]:
        """The rows of a statement, which is prepared if it is not yet."""
        name = self.names.get(text)
        if name is None:
            name = await self.prepare(text)
        self.pgconn.send_query_prepared(name, values, BINARY[: len(values)], 1)
        return loaded(self.transformer, await self.exchange())

    async def say(self, text: str, values: Values) -> list[Row]:
        """The same without preparing: planned each time, and whole for whatever server is behind a pooler."""
        self.pgconn.send_query_params(text.encode(), values, None, BINARY[: len(values)], 1)
        return loaded(self.transformer, await self.exchange())

    async def prepare(self, text: str) -> bytes:
        """Have the statement prepared; returns its name.

        The name says what it is: a pooler lets others use the same session, and a number of ours could be theirs for
        another statement. That it is prepared already is no error then.
        """
        name = name_of(text)
        self.pgconn.send_prepare(name, text.encode())
        with suppress(DuplicatePreparedStatement):
            checked(await self.exchange())
        self.names[text] = name
        return name

    async def exchange(self) -> list[PGresult]:
        """Everything the server answers, until it is ready again: only then is the statement committed."""
        pgconn, readiness = self.pgconn, self.readiness
        results: list[PGresult] = []
        readiness.until = None
        while pgconn.flush():
            await readiness.writable()
        while True:
            while pgconn.is_busy():
                await readiness.readable()
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                return results
            results.append(result)

    async def check_lock_timeout(self) -> None:
        """Raise StoreUnavailable when somebody in between has dropped what the connection was opened with."""
        self.pgconn.send_query(b"SHOW lock_timeout")
        found = checked(await self.exchange()).get_value(0, 0)
        if found == b"0" and "lock_timeout=0" not in self.connection.info.get_parameters().get("options", ""):
            raise lock_timeout_dropped()

    def failure(self, error: Exception, key: Key | None) -> UmavezError:
        """What `error` on this connection means."""
        return failed(error, is_lost(error, self.connection), key)

    def close(self) -> None:
        """Leave the loop, then the server. What psycopg's own close() does, without a coroutine."""
        self.readiness.stop()
        self.pgconn.finish()
