"""Statements on a connection that is at hand, for tasks; see `umavez.sql.connection`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umavez.concurrency.hearing import async_heard
from umavez.sql.dialect import Row, async_cursor_of, dialect_of, marked
from umavez.sql.joining import async_driver_connection


class AsyncSql:
    """Runs statements on a connection. Made by `AsyncSql.on`, which unwraps SQLAlchemy's."""

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
        return await async_heard(self._rows(text, values))

    async def _rows(self, text: str, values: Sequence[Any]) -> list[Row]:
        cursor = await async_cursor_of(self.connection, self.dialect)
        try:
            await cursor.execute(marked(text, self.dialect), tuple(values))
            return [] if cursor.description is None else list(await cursor.fetchall())
        finally:
            await cursor.close()

    async def count(self, text: str, values: Sequence[Any] = ()) -> int:
        """Execute; how many rows were written."""
        return await async_heard(self._count(text, values))

    async def _count(self, text: str, values: Sequence[Any]) -> int:
        cursor = await async_cursor_of(self.connection, self.dialect)
        try:
            await cursor.execute(marked(text, self.dialect), tuple(values))
            return int(cursor.rowcount)
        finally:
            await cursor.close()
