"""Database: connections for the systems' use cases, on SQLite and PostgreSQL.

Use cases are plain synchronous functions over one connection in one transaction: the same text on both
databases, no session, nothing lazy. SQL is written with `?`.
"""

from __future__ import annotations

import select
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import psycopg
import psycopg_pool
from psycopg.pq import TransactionStatus

from umavez import SchemaOutdated, StoreError, StoreUnavailable, StoreUncertain
from umavez_systems.postgres import trips
from umavez_systems.postgres.patience import NoAnswer, PatientConnection, patient

Row = dict[str, Any]


class Connection(Protocol):
    """A transaction in progress."""

    @property
    def raw(self) -> Any:
        """The driver's connection, for the engine to join."""
        ...

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Every row of a statement."""
        ...

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """The first row of a statement, or None."""
        ...


class Duplicate(Exception):
    """A UNIQUE constraint refused a row; `constraint` names its column or index."""

    def __init__(self, constraint: str) -> None:
        super().__init__(constraint)
        self.constraint = constraint


class Database(Protocol):
    """Where the systems keep their tables."""

    url: str
    store_url: str
    timeout: float
    """Seconds that a statement or a lock may take."""

    def transaction(self) -> AbstractContextManager[Connection]:
        """A context manager of a Connection: commits at its end, rolls back on any error."""
        ...

    def statements(self) -> AbstractContextManager[Connection]:
        """A context manager of a Connection whose every statement commits by itself."""
        ...

    def close(self) -> None:
        """Give every connection back."""
        ...


def shown_instant(value: object) -> str:
    """A database's instant in an answer: SQLite gives text in UTC, PostgreSQL a datetime."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    assert isinstance(value, datetime)  # noqa: S101  # both drivers give nothing else for these columns
    aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return aware.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def open_database(url: str, threads: int, timeout: float = 10.0) -> Database:
    """The database that `url` names. Whatever it does for longer than `timeout` seconds is a StoreError."""
    return SqliteDatabase(url, timeout) if url.startswith("sqlite") else PostgresDatabase(url, threads, timeout)


class _Sqlite:
    __slots__ = ("raw",)

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw = raw

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with _TRANSLATED:
            cursor = self.raw.execute(sql, tuple(values))
            if cursor.description is None:
                return []
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        found = self.rows(sql, values)
        return found[0] if found else None


class SqliteDatabase:
    """One file in rollback-journal mode, so that any number of processes and connections may write it safely."""

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        path = Path(unquote(url.partition(":///")[2].partition("?")[0]))
        path.parent.mkdir(parents=True, exist_ok=True)
        self.url = url
        self.timeout = timeout
        self.path = path
        self.store_url = f"sqlite:///{path}?journal=delete&timeout={timeout:g}"
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A write transaction, begun IMMEDIATE so that it never has to be refused midway."""
        raw = self._connection()
        with _TRANSLATED:
            raw.execute("BEGIN IMMEDIATE")
            try:
                yield _Sqlite(raw)
                raw.execute("COMMIT")
            except BaseException:
                if raw.in_transaction:
                    raw.execute("ROLLBACK")
                raise

    @contextmanager
    def statements(self) -> Iterator[Connection]:
        """Statements that commit one by one."""
        with _TRANSLATED:
            yield _Sqlite(self._connection())

    def _connection(self) -> sqlite3.Connection:
        raw: sqlite3.Connection | None = getattr(self._local, "raw", None)
        if raw is None:
            raw = sqlite3.connect(self.path, timeout=self.timeout, isolation_level=None, check_same_thread=False)
            raw.execute("PRAGMA foreign_keys = ON")
            raw.execute("PRAGMA synchronous = FULL")
            self._local.raw = raw
            self._opened.append(raw)
        return raw

    def close(self) -> None:
        """Close the connections of every thread."""
        for raw in self._opened:
            raw.close()
        self._opened.clear()
        self._local = threading.local()


class _Postgres:
    __slots__ = ("_awaited", "_raw")

    def __init__(self, raw: PatientConnection, *, begin: bool = False) -> None:
        self._raw = raw
        self._awaited = begin
        """A transaction is to begin, with the first statement: alone it would cost a round trip."""

    @property
    def raw(self) -> PatientConnection:
        if self._awaited:
            self._awaited = False
            with _TRANSLATED:
                trips.command(self._raw, b"BEGIN")
        return self._raw

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        begin, self._awaited = self._awaited, False
        with _TRANSLATED:
            return trips.rows_of(self._raw, _marked(sql), values, begin=begin)

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        found = self.rows(sql, values)
        return found[0] if found else None


@lru_cache(maxsize=500)
def _marked(sql: str) -> bytes:
    first, *rest = sql.split("?")
    return "".join([first, *(f"${place}{part}" for place, part in enumerate(rest, 1))]).encode()


class PostgresDatabase:
    """A pool of connections in autocommit mode; a statement is prepared the second time it is used."""

    def __init__(self, url: str, threads: int, timeout: float = 10.0) -> None:
        self.url = url
        self.store_url = f"{url}{'&' if '?' in url else '?'}timeout={max(1.0, timeout):g}"
        self.timeout = timeout
        self._most = threads + 2
        how = {"autocommit": True, "prepare_threshold": 1}
        self._pool = psycopg_pool.ConnectionPool(
            patient(url, timeout),
            connection_class=PatientConnection,
            configure=self._configure,
            min_size=1,
            max_size=1,
            timeout=timeout,
            kwargs=how,
            check=_checked,
            open=True,
        )

    def _configure(self, raw: PatientConnection) -> None:
        raw.allow(self.timeout)
        if self._pool.max_size < self._most:
            # Only now: whoever asked while the first was being opened would have made the pool open a second, and the
            # two would be used in turn, each with every statement still to be prepared and planned.
            self._pool.resize(1, self._most)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A READ COMMITTED transaction; a connection that failed is not used again."""
        with self._taken() as raw:
            try:
                yield _Postgres(raw, begin=True)
            except BaseException:
                _roll_back(raw)
                raise
            if raw.pgconn.transaction_status == TransactionStatus.INERROR:
                # To COMMIT the server would answer with a rollback, and without an error.
                _roll_back(raw)
                raise StoreUnavailable("A statement of the transaction had failed; nothing of it was written.")
            if raw.pgconn.transaction_status != TransactionStatus.IDLE:
                _commit(raw)

    @contextmanager
    def statements(self) -> Iterator[Connection]:
        """Statements that commit one by one: no round trips for BEGIN and COMMIT around a single one."""
        with self._taken() as raw:
            yield _Postgres(raw)

    @contextmanager
    def _taken(self) -> Iterator[PatientConnection]:
        """A connection of the pool, and its errors made ours."""
        with _TRANSLATED:
            raw = self._pool.getconn()
            try:
                yield raw
            except StoreUnavailable as error:
                if isinstance(error.__cause__, psycopg.errors.ReadOnlySqlTransaction):
                    raw.close()  # a standby: the next connection finds out who takes writes now
                raise
            finally:
                # The pool looks at what comes back: a connection that broke is replaced.
                self._pool.putconn(raw)

    def close(self) -> None:
        """Close the pool."""
        self._pool.close()


def _commit(raw: PatientConnection) -> None:
    try:
        trips.command(raw, b"COMMIT")
    except psycopg.OperationalError as error:
        if _is_gone(error):
            raise StoreUncertain("The database went away while it committed; ask again to learn.") from error
        raise


def _roll_back(raw: PatientConnection) -> None:
    """What the block raised is what its caller must see: a connection that cannot roll back is one that broke."""
    with suppress(psycopg.Error):
        raw.rollback()


def _checked(raw: psycopg.Connection[Any]) -> None:
    """Refuse a connection that the server has left: something to read on an idle one is its farewell.

    Asking costs a round trip, looking at the socket costs nothing. Raises psycopg.OperationalError.
    """
    looking = select.poll()
    looking.register(raw.fileno(), select.POLLIN)
    if looking.poll(0):
        psycopg_pool.ConnectionPool.check_connection(raw)


def _is_gone(error: psycopg.Error) -> bool:
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


class _Translated:
    """Makes the drivers' errors ours. Without state: one serves every statement, which a generator could not."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case None:
                return
            case sqlite3.IntegrityError():
                raise Duplicate(str(error).rpartition(".")[2]) from error
            case psycopg.errors.UniqueViolation():
                raise Duplicate(error.diag.constraint_name or "") from error
            case NoAnswer():
                raise StoreUncertain("The database's answer did not come; ask again to learn what stands.") from error
            case sqlite3.OperationalError() | psycopg.Error() | psycopg_pool.PoolTimeout():
                if (meaning := _meaning(error)) is not None:
                    raise meaning from error


def _meaning(error: Exception) -> StoreError | None:
    """What a driver's error is; None for a mistake of ours, which is not to be tried again."""
    if isinstance(error, _MISSING) or str(error).startswith(("no such table", "no such column")):
        return SchemaOutdated("Tables are missing or old; `umavez serve` creates and upgrades them when it starts.")
    if isinstance(error, _BUSY) or str(error).startswith("database is locked"):
        return StoreUnavailable("Somebody held what was needed for too long; nothing was written, try again.")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return StoreUnavailable("This server takes no writes at the moment; nothing was written, try again.")
    if isinstance(error, sqlite3.OperationalError | psycopg.OperationalError | psycopg_pool.PoolTimeout | _IDLE):
        return StoreUnavailable("The database did not answer; try again.")
    return None


_MISSING = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
_IDLE = psycopg.errors.IdleInTransactionSessionTimeout


_TRANSLATED = _Translated()
