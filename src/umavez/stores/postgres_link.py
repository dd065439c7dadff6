"""Connections of the PostgreSQL store's own, for threads and for tasks.

A link keeps one connection in autocommit and READ COMMITTED, and speaks libpq's prepared statements itself: the short
path of a cursor costs four times the work. After any error, interruption or cancellation it drops the connection and
opens another at the next use. A connection that was in use before may have died while it was idle, so a statement that
got no answer on it is sent once more on a new one: a swap that was done all the same is recognised by its stamp.

Behind PgBouncer in transaction mode this needs `max_prepared_statements` and `ignore_startup_parameters = options`.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.adapt import Transformer
from psycopg.pq.abc import PGconn, PGresult

from umavez.core.key import Key
from umavez.errors import StoreError, StoreUncertain, UmavezError
from umavez.stores.postgres_errors import failed, is_lost, not_reached
from umavez.stores.postgres_reading import Reading, writable
from umavez.stores.postgres_values import BINARY, checked, encoded, loaded

Row = tuple[Any, ...]
C = TypeVar("C", Connection[Any], AsyncConnection[Any])


class Link:
    """One connection, used by one thread at a time."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._line: _Line[Connection[Any]] | None = None
        self._poll, self._writable = select.poll(), select.poll()

    def rows(self, text: str, values: Sequence[Any], key: Key | None = None) -> list[Row]:
        """The rows that a statement returns. Raises StoreError, or what `failed` makes of an error about `key`."""
        used = self._line is not None
        try:
            return self._run(text, values, key)
        except StoreUncertain as uncertain:
            if not used:
                raise
            return self._again(text, values, key, uncertain)

    def _again(self, text: str, values: Sequence[Any], key: Key | None, uncertain: StoreUncertain) -> list[Row]:
        try:
            return self._run(text, values, key)
        except StoreError:
            # Whatever stopped the second sending, the first may have been done.
            raise uncertain from uncertain.__cause__

    def _run(self, text: str, values: Sequence[Any], key: Key | None) -> list[Row]:
        line = self._line or self._open()
        try:
            name = line.names.get(text)
            if name is None:
                name = line.prepare(text)
                checked(self._exchange(line))
            line.pgconn.send_query_prepared(name, encoded(values), BINARY[: len(values)], 1)
            return loaded(line.transformer, self._exchange(line))
        except (psycopg.Error, UnicodeEncodeError) as error:
            failure = line.failure(error, key)
            self.close()
            raise failure from error
        except BaseException:  # an interrupt included: the answer must not be taken for the next statement's
            self.close()
            raise

    def _exchange(self, line: _Line[Connection[Any]]) -> list[PGresult]:
        """Everything the server answers, until it is ready again: only then is the statement committed."""
        pgconn = line.pgconn
        results: list[PGresult] = []
        while pgconn.flush():
            self._writable.poll()  # not select(), which fails for descriptors above 1023
        while True:
            while pgconn.is_busy():
                self._poll.poll()
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                return results
            results.append(result)

    def _open(self) -> _Line[Connection[Any]]:
        try:
            connection = Connection.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise not_reached(error) from error
        self._line = _Line(connection)
        self._poll, self._writable = select.poll(), select.poll()
        self._poll.register(connection.pgconn.socket, select.POLLIN)
        self._writable.register(connection.pgconn.socket, select.POLLOUT)
        return self._line

    def close(self) -> None:
        """Drop the connection; the next use opens another."""
        line, self._line = self._line, None
        if line is not None:
            line.connection.close()

    def forget(self) -> object:
        """Give the connection up without a word to the server: in a forked child it is the parent's."""
        line, self._line = self._line, None
        return line


class AsyncLink:
    """A Link for one task at a time."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._line: _Line[AsyncConnection[Any]] | None = None
        self._reading: Reading | None = None

    async def rows(self, text: str, values: Sequence[Any], key: Key | None = None) -> list[Row]:
        """See Link.rows."""
        used = self._line is not None
        try:
            return await self._run(text, values, key)
        except StoreUncertain as uncertain:
            if not used:
                raise
            return await self._again(text, values, key, uncertain)

    async def _again(self, text: str, values: Sequence[Any], key: Key | None, uncertain: StoreUncertain) -> list[Row]:
        try:
            return await self._run(text, values, key)
        except StoreError:
            raise uncertain from uncertain.__cause__

    async def _run(self, text: str, values: Sequence[Any], key: Key | None) -> list[Row]:
        line = self._line or await self._open()
        try:
            name = line.names.get(text)
            if name is None:
                name = line.prepare(text)
                checked(await self._exchange(line))
            line.pgconn.send_query_prepared(name, encoded(values), BINARY[: len(values)], 1)
            return loaded(line.transformer, await self._exchange(line))
        except (psycopg.Error, UnicodeEncodeError) as error:
            failure = line.failure(error, key)
            await self.close()
            raise failure from error
        except BaseException:  # a cancelled task included: the answer must not be taken for the next statement's
            await self.close()
            raise

    async def _exchange(self, line: _Line[AsyncConnection[Any]]) -> list[PGresult]:
        """See Link._exchange."""
        pgconn = line.pgconn
        reading = self._reading = self._reading or Reading(line.connection)
        results: list[PGresult] = []
        while pgconn.flush():
            await writable(pgconn.socket)
        while True:
            while pgconn.is_busy():
                await reading.ready()
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                return results
            results.append(result)

    async def _open(self) -> _Line[AsyncConnection[Any]]:
        try:
            connection = await AsyncConnection.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise not_reached(error) from error
        self._line = _Line(connection)
        return self._line

    async def close(self) -> None:
        """Drop the connection; the next use opens another."""
        line, self._line = self._line, None
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.stop()
        if line is not None:
            await line.connection.close()

    def forget(self) -> object:
        """See Link.forget. The loop is the parent's too."""
        inherited = self._line, self._reading
        self._line = self._reading = None
        return inherited

    def __del__(self) -> None:
        if self._reading is not None:  # nobody closed it
            self._reading.abandon()


class _Line(Generic[C]):
    """An open connection, the statements prepared on it, and how its results are read."""

    def __init__(self, connection: C) -> None:
        self.connection: C = connection
        self.pgconn: PGconn = connection.pgconn
        self.names: dict[str, bytes] = {}
        self.transformer = Transformer(connection)

    def prepare(self, text: str) -> bytes:
        """Send the statement to be prepared; returns its name."""
        name = b"umavez_%d" % len(self.names)
        self.pgconn.send_prepare(name, text.encode())
        self.names[text] = name
        return name

    def failure(self, error: Exception, key: Key | None) -> UmavezError:
        """What `error` on this connection means."""
        return failed(error, is_lost(error, self.connection), key)
