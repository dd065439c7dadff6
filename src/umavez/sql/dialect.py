"""Dialects: which database a driver's connection speaks to, how its statements are marked, what its cursors are."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from importlib import import_module
from typing import Any

from umavez.errors import ConfigurationError

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
def marked(text: str, dialect: Dialect) -> str:
    """`text` with the driver's placeholders. Literal question marks and per cents do not occur in our statements."""
    return text if dialect is Dialect.SQLITE else text.replace("?", "%s")


def strictly(text: str, dialect: Dialect) -> str:
    """`text`, refused where it would keep another value than it was given.

    In a session without strict mode MariaDB cuts a text that is too long, and puts question marks where the
    connection's character set knows no better, with no more than a warning.
    """
    if dialect is not Dialect.MARIADB:
        return text
    return f"SET STATEMENT sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES') FOR {text}"


def cursor_of(connection: Any, dialect: Dialect) -> Any:
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


async def async_cursor_of(connection: Any, dialect: Dialect) -> Any:
    """See `cursor_of`. By hand, because aiosqlite alone makes its cursors in its thread."""
    cursor = cursor_of(connection, dialect)
    if hasattr(cursor, "__await__"):
        cursor = await cursor
    if dialect is Dialect.SQLITE:
        cursor.row_factory = None
    return cursor


def close(connection: Any) -> None:
    """Close a driver's connection."""
    connection.close()


async def async_close(connection: Any) -> None:
    """Close a driver's connection. asyncmy's close() only lets go of the socket; ensure_closed() says goodbye first."""
    await getattr(connection, "ensure_closed", connection.close)()
