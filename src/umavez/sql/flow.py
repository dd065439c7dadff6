"""Flows of SQL statements: decided once, without I/O, and carried out on a sync or an awaited connection.

A flow yields `Ask` (answered with rows) and `Write` (answered with a count) and returns its result. `Sql` and
`AsyncSql` carry flows out; neither begins nor ends the caller's transaction, except where SQLite needs a BEGIN.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from umavez.errors import ConfigurationError
from umavez.sql.connection import AsyncSql, Dialect, Row, Sql

T = TypeVar("T")
IN_TRANSACTION = 1
"""The bit of MariaDB's status that says a transaction is open."""

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
