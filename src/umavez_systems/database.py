"""Database: connections for the systems' use cases, on SQLite and PostgreSQL.

Use cases are plain synchronous functions over one connection in one transaction: the same text on both
databases, no session, nothing lazy. SQL is written with `?`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import psycopg
import psycopg_pool
from psycopg.rows import dict_row

from umavez import StoreUnavailable

Row = dict[str, Any]


class Connection(Protocol):
    """A transaction in progress. `raw` is the driver's connection, for the engine to join."""

    raw: Any

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

    def transaction(self) -> AbstractContextManager[Connection]:
        """A context manager of a Connection: commits at its end, rolls back on any error."""
        ...

    def statements(self) -> AbstractContextManager[Connection]:
        """A context manager of a Connection whose every statement commits by itself."""
        ...

    def close(self) -> None:
        """Give every connection back."""
        ...


def open_database(url: str, threads: int) -> Database:
    """The database that `url` names."""
    return SqliteDatabase(url) if url.startswith("sqlite") else PostgresDatabase(url, threads)


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

    def __init__(self, url: str) -> None:
        path = Path(unquote(url.partition(":///")[2].partition("?")[0]))
        path.parent.mkdir(parents=True, exist_ok=True)
        self.url = url
        self.path = path
        self.store_url = f"sqlite:///{path}?journal=delete"
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
            raw = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
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
    __slots__ = ("raw",)

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with _TRANSLATED:
            cursor = self.raw.cursor(row_factory=dict_row)
            cursor.execute(_marked(sql), values)
            return [] if cursor.description is None else cursor.fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        found = self.rows(sql, values)
        return found[0] if found else None


@lru_cache(maxsize=500)
def _marked(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


class PostgresDatabase:
    """A pool of connections in autocommit mode; a statement is prepared the second time it is used."""

    def __init__(self, url: str, threads: int) -> None:
        self.url = self.store_url = url
        how = {"autocommit": True, "prepare_threshold": 1}
        self._pool = psycopg_pool.ConnectionPool(
            url, min_size=1, max_size=threads + 2, timeout=10.0, kwargs=how, open=True
        )

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A READ COMMITTED transaction; a connection that failed is not used again."""
        with self.statements() as connection, connection.raw.transaction():
            yield connection

    @contextmanager
    def statements(self) -> Iterator[Connection]:
        """Statements that commit one by one: no round trips for BEGIN and COMMIT around a single one."""
        with _TRANSLATED:
            raw = self._pool.getconn()
            try:
                yield _Postgres(raw)
            finally:
                # The pool looks at what comes back: a connection that broke is replaced.
                self._pool.putconn(raw)

    def close(self) -> None:
        """Close the pool."""
        self._pool.close()


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
            case sqlite3.OperationalError() | psycopg.OperationalError() | psycopg_pool.PoolTimeout():
                raise StoreUnavailable("The database did not answer; try again.") from error


_TRANSLATED = _Translated()
