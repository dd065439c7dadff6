"""Flows of SQL statements: decided once, without I/O, and carried out on a sync or an awaited connection.

A flow yields `Ask` (answered with rows) and `Write` (answered with a count) and returns its result. `Sql` and
`AsyncSql` carry flows out; neither begins nor ends the caller's transaction, except where SQLite needs a BEGIN.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple, Protocol, TypeVar

from umavez.errors import ConfigurationError, SchemaOutdated, StoreUnavailable
from umavez.sql.connection import AsyncSql, Dialect, Row, Sql
from umavez.stores import MIGRATING

T = TypeVar("T")
IN_TRANSACTION = 1
"""The bit of MariaDB's status that says a transaction is open."""

PATIENCE = 60
"""Seconds that a migration waits for another, or for a transaction that is in its way."""

_LOCK = "concat('umavez migrate ', md5(database()))"
"""The name at which MariaDB's migrations of one database queue."""

_THERE = {
    Dialect.SQLITE: "SELECT count(*) FROM sqlite_master WHERE name = ?",
    Dialect.POSTGRES: "SELECT to_regclass(?) IS NOT NULL",
    Dialect.MARIADB: "SELECT count(*) FROM information_schema.tables"
    " WHERE table_schema = database() AND table_name = ?",
}
"""Whether a table is there."""

_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")

_NOW = {
    Dialect.SQLITE: "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    Dialect.POSTGRES: "(extract(epoch FROM statement_timestamp()) * 1000)::bigint",
    Dialect.MARIADB: "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
}


class Ask(NamedTuple):
    """A statement that is answered with its rows. `alone`: it needs no transaction around it."""

    text: str
    values: Sequence[Any] = ()
    alone: bool = False


class Write(NamedTuple):
    """A statement that is answered with how many rows it wrote. `alone`: as of Ask."""

    text: str
    values: Sequence[Any] = ()
    alone: bool = False


SqlFlow = Generator[Ask | Write, Any, T]


class Runner(Protocol):
    """What carries out awaited statements: AsyncSql, or one that works in a thread."""

    async def rows(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute and fetch."""
        ...

    async def count(self, text: str, values: Sequence[Any] = ()) -> int:
        """Execute and count."""
        ...


def now_at(dialect: Dialect, offset: int = 0) -> str:
    """The database's own time in milliseconds, as an expression; `offset` lets tests step ahead."""
    return f"({_NOW[dialect]} + {int(offset)})" if offset else _NOW[dialect]


def carry(flow: SqlFlow[T], sql: Sql) -> T:
    """Carry out a flow on `sql`; returns what the flow returns."""
    try:
        step = next(flow)
        while True:
            run = sql.rows if type(step) is Ask else sql.count
            step = flow.send(run(step.text, step.values))
    except StopIteration as done:
        result: T = done.value
        return result


async def async_carry(flow: SqlFlow[T], sql: Runner) -> T:
    """Carry out a flow on `sql`, awaited; returns what the flow returns."""
    try:
        step = next(flow)
        while True:
            run = sql.rows if type(step) is Ask else sql.count
            step = flow.send(await run(step.text, step.values))
    except StopIteration as done:
        result: T = done.value
        return result


def begun_late(flow: SqlFlow[T], begin: str) -> SqlFlow[tuple[T, bool]]:
    """`flow` with `begin` before the first statement that is not alone; returns its result, and whether it was begun.

    A look that finds nothing then costs one statement, and takes no lock from those who write.
    """
    begun = False
    try:
        step = next(flow)
        while True:
            if not begun and not step.alone:
                yield Write(begin)
                begun = True
            step = flow.send((yield step))
    except StopIteration as done:
        result: T = done.value
        return result, begun


def joining(sql: Sql | AsyncSql) -> SqlFlow[None]:
    """Make sure that a transaction is open, so that what follows can be rolled back with the caller's work.

    Raises ConfigurationError for a connection in autocommit mode without one. SQLite's is begun if it was not:
    IMMEDIATE, because a transaction that reads first and writes later can be refused without waiting.
    """
    connection = sql.connection
    if sql.dialect is Dialect.SQLITE:
        if not connection.in_transaction:
            yield Write("BEGIN IMMEDIATE")
        return
    if not _would_roll_back(connection, sql.dialect):
        raise ConfigurationError(
            "The connection is in autocommit mode with no open transaction; begin one, so that this can be rolled back."
        )


def joined(sql: Sql | AsyncSql, flow: SqlFlow[T]) -> SqlFlow[T]:
    """`flow` in the caller's open transaction; see `joining`."""
    yield from joining(sql)
    return (yield from flow)


def _would_roll_back(connection: Any, dialect: Dialect) -> bool:
    if dialect is Dialect.POSTGRES:
        return not connection.autocommit or connection.info.transaction_status != 0
    return not connection.get_autocommit() or bool(connection.server_status & IN_TRANSACTION)


def migration(package: str, name: str, newest: int, dialect: Dialect) -> SqlFlow[str]:
    """Create or upgrade the tables that `package`'s schema folder describes; safe to repeat, and by many at once.

    Tables that are up to date are left alone: not even a lock on them is asked for. Raises SchemaOutdated where a
    newer umavez made them, and StoreUnavailable where others migrate for too long.
    """
    yield from _queue_to_migrate(dialect)
    statements = _statements(package, dialect)
    before = yield from _installed(name, statements, dialect)
    if before > newest:
        raise SchemaOutdated(
            f"The tables of {name} are at version {before} and this umavez knows {newest}; upgrade umavez."
        )
    if before < newest:
        for statement in statements:
            yield Write(statement)
        yield Write("UPDATE umavez_meta SET value = ? WHERE name = ?", (newest, name))
    if dialect is Dialect.MARIADB:
        yield Ask(f"SELECT RELEASE_LOCK({_LOCK})")
    return f"The tables of {name} {'were already' if before == newest else 'are now'} at version {newest}."


def _queue_to_migrate(dialect: Dialect) -> SqlFlow[None]:
    """Wait until nobody else migrates this database. SQLite needs no more than the transaction it is in."""
    if dialect is Dialect.POSTGRES:
        yield Write(f"SET LOCAL lock_timeout = {PATIENCE * 1000}")
        yield Write("SET LOCAL statement_timeout = 0")
        yield Ask("SELECT pg_advisory_xact_lock(?)", (MIGRATING,))
    if dialect is Dialect.MARIADB:
        # A little at a time: the connection itself gives up on an answer that takes as long as a statement may.
        for _ in range(PATIENCE // 5):
            if (yield Ask(f"SELECT GET_LOCK({_LOCK}, 5)"))[0][0] == 1:
                break
        else:
            raise StoreUnavailable(f"Somebody else has been migrating for more than {PATIENCE} s; try again.")


def _installed(name: str, statements: Sequence[str], dialect: Dialect) -> SqlFlow[int]:
    """The version of the tables called `name`; 0 where one of them is not there, whatever the version says."""
    tables = [found[1] for text in statements if (found := _TABLE.match(text))]
    for table in tables:
        if not (yield Ask(_THERE[dialect], (table,)))[0][0]:
            return 0
    rows = yield Ask("SELECT value FROM umavez_meta WHERE name = ?", (name,))
    return int(rows[0][0]) if rows else 0


def _statements(package: str, dialect: Dialect) -> list[str]:
    text = files(package).joinpath(f"schema/{dialect.name.lower()}.sql").read_text("utf-8")
    return [part.strip() for part in re.sub(r"--[^\n]*", "", text).split(";") if part.strip()]
