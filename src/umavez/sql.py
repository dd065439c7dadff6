"""Sql: one small way to run statements on whatever SQL connection is at hand.

For the instruments that write in the caller's transaction or keep tables of their own (outbox, sequences,
row leases). Statements are written with `?`; a dialect's own text stands beside the others, by name.
Nothing here commits: whoever began the transaction ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from importlib import import_module
from typing import Any

from umavez.errors import ConfigurationError
from umavez.stores.joining import async_driver_connection, driver_connection

Row = tuple[Any, ...]


class Dialect(Enum):
    """The SQL databases that umavez speaks."""

    SQLITE = "sqlite"
    POSTGRES = "postgresql"
    MARIADB = "mariadb"


_DIALECTS = {
    "sqlite3": Dialect.SQLITE,
    "aiosqlite": Dialect.SQLITE,
    "psycopg": Dialect.POSTGRES,
    "pymysql": Dialect.MARIADB,
    "asyncmy": Dialect.MARIADB,
}


def dialect_of(connection: Any) -> Dialect:
    """The dialect of a driver's connection. Raises ConfigurationError for one that is not known."""
    for kind in type(connection).__mro__:
        dialect = _DIALECTS.get(kind.__module__.partition(".")[0])
        if dialect is not None:
            return dialect
    raise ConfigurationError(
        f"A {type(connection).__module__}.{type(connection).__qualname__} is not a connection umavez can write on; "
        "give one of sqlite3, aiosqlite, psycopg, pymysql, asyncmy or SQLAlchemy 2."
    )


@lru_cache(maxsize=500)
def _marked(text: str, dialect: Dialect) -> str:
    """`text` with the driver's placeholders. Literal question marks and per cents do not occur in our statements."""
    return text if dialect is Dialect.SQLITE else text.replace("?", "%s")


def _cursor(connection: Any, dialect: Dialect) -> Any:
    """A cursor whose rows are tuples, whatever rows the caller's own cursors give: we read columns by their place."""
    if dialect is Dialect.POSTGRES:
        return connection.cursor(row_factory=import_module("psycopg.rows").tuple_row)
    driver = type(connection).__module__.partition(".")[0]
    if driver in ("pymysql", "asyncmy"):
        return connection.cursor(import_module(f"{driver}.cursors").Cursor)
    cursor = connection.cursor()
    if driver == "sqlite3":
        cursor.row_factory = None
    return cursor


class Sql:
    """Runs statements on a sync connection (a driver's, or SQLAlchemy's Connection or Session)."""

    __slots__ = ("connection", "dialect")

    def __init__(self, connection: Any) -> None:
        self.connection = driver_connection(connection)
        self.dialect = dialect_of(self.connection)

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute and fetch every row; an empty list for a statement that returns none."""
        cursor = _cursor(self.connection, self.dialect)
        try:
            cursor.execute(_marked(text, self.dialect), tuple(values))
            return [] if cursor.description is None else list(cursor.fetchall())
        finally:
            cursor.close()

    def count(self, text: str, values: Sequence[Any] = ()) -> int:
        """Execute; how many rows were written."""
        cursor = _cursor(self.connection, self.dialect)
        try:
            cursor.execute(_marked(text, self.dialect), tuple(values))
            return int(cursor.rowcount)
        finally:
            cursor.close()


class AsyncSql:
    """Runs statements on a connection that is awaited. Made by `AsyncSql.on`, which unwraps SQLAlchemy's."""

    __slots__ = ("connection", "dialect")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.dialect = dialect_of(connection)

    @classmethod
    async def on(cls, connection: Any) -> AsyncSql:
        """Statements on a driver's connection, or SQLAlchemy's AsyncConnection or AsyncSession."""
        return cls(await async_driver_connection(connection))

    async def rows(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute and fetch every row; an empty list for a statement that returns none."""
        cursor = await self._executed(text, values)
        try:
            return [] if cursor.description is None else list(await cursor.fetchall())
        finally:
            await cursor.close()

    async def count(self, text: str, values: Sequence[Any] = ()) -> int:
        """Execute; how many rows were written."""
        cursor = await self._executed(text, values)
        try:
            return int(cursor.rowcount)
        finally:
            await cursor.close()

    async def _executed(self, text: str, values: Sequence[Any]) -> Any:
        cursor = _cursor(self.connection, self.dialect)
        if hasattr(cursor, "__await__"):
            cursor = await cursor  # aiosqlite makes its cursors in its thread
        if self.dialect is Dialect.SQLITE:
            cursor.row_factory = None
        await cursor.execute(_marked(text, self.dialect), tuple(values))
        return cursor
