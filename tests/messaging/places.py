"""Where the messages of a test lie: one database, opened by the drivers that callers use."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from umavez.messaging import Outbox

TABLES = ("umavez_outbox", "umavez_deliveries", "umavez_subscriptions")


class Place:
    """A database by its URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = url.partition(":")[0]

    def connect(self) -> Any:
        """A sync connection that opens transactions by itself."""
        if self.kind == "sqlite":
            return sqlite3.connect(self.url[len("sqlite:///") :].partition("?")[0], timeout=20)
        if self.kind == "postgresql":
            import psycopg

            return psycopg.connect(self.url)
        import pymysql

        return pymysql.connect(**self._mariadb())

    async def connect_async(self) -> Any:
        """The same, awaited."""
        if self.kind == "sqlite":
            import aiosqlite

            return await aiosqlite.connect(self.url[len("sqlite:///") :].partition("?")[0], timeout=20)
        if self.kind == "postgresql":
            import psycopg

            return await psycopg.AsyncConnection.connect(self.url)
        import asyncmy

        return await asyncmy.connect(**self._mariadb())

    def _mariadb(self) -> dict[str, Any]:
        split = urlsplit(self.url)
        return {
            "host": split.hostname,
            "port": split.port or 3306,
            "user": split.username or "root",
            "password": split.password or "",
            "database": split.path.lstrip("/"),
        }

    def empty(self) -> None:
        """The tables exist and hold nothing."""
        with closing(self.connect()) as connection:
            Outbox().migrate(connection)
            for table in TABLES:
                self.run(connection, f"DELETE FROM {table}")
            connection.commit()

    def run(self, connection: Any, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute on the caller's connection, as the caller would."""
        cursor = connection.cursor()
        cursor.execute(text if self.kind == "sqlite" else text.replace("?", "%s"), values)
        rows = list(cursor.fetchall()) if cursor.description else []
        cursor.close()
        return rows

    def look(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows as a stranger sees them."""
        with closing(self.connect()) as connection:
            return self.run(connection, text, *values)


def place_of(url: str) -> Place:
    return Place(url)
