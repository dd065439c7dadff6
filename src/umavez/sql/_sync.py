# Written by tools/sync.py from src/umavez/sql/_async.py: change that, then run `make format`.
"""Statements on a connection that is at hand, for threads; see `umavez.sql.connection`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umavez.concurrency.hearing import heard
from umavez.sql.dialect import Row, cursor_of, dialect_of, marked
from umavez.sql.joining import driver_connection


class Sql:
    """Runs statements on a connection. Made by `Sql.on`, which unwraps SQLAlchemy's."""

    __slots__ = ("connection", "dialect")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.dialect = dialect_of(connection)

    @classmethod
    def on(cls, connection: Any) -> Sql:
        """Statements on a driver's connection, or SQLAlchemy's Connection or Session."""
        return cls(driver_connection(connection))

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute and fetch every row; an empty list for a statement that returns none."""
        return heard(self._rows(text, values))

    def _rows(self, text: str, values: Sequence[Any]) -> list[Row]:
        cursor = cursor_of(self.connection, self.dialect)
        try:
            cursor.execute(marked(text, self.dialect), tuple(values))
            return [] if cursor.description is None else list(cursor.fetchall())
        finally:
            cursor.close()

    def count(self, text: str, values: Sequence[Any] = ()) -> int:
        """Execute; how many rows were written."""
        return heard(self._count(text, values))

    def _count(self, text: str, values: Sequence[Any]) -> int:
        cursor = cursor_of(self.connection, self.dialect)
        try:
            cursor.execute(marked(text, self.dialect), tuple(values))
            return int(cursor.rowcount)
        finally:
            cursor.close()
