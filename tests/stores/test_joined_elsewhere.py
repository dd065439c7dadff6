"""A connection to another database than the store's cannot be joined: the record would land where nobody looks."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.instrument_benches import connect, connect_async, sql_url
from umavez import AsyncOnce, Once
from umavez.errors import ConfigurationError
from umavez.sql.connection import Sql

__all__ = ["sql_url"]


def run(sql: str, url: str) -> None:
    connection = connect(url)
    if url.startswith("postgresql"):
        connection.autocommit = True
    Sql.on(connection).count(sql)
    connection.close()


@pytest.fixture
def elsewhere(sql_url: str, tmp_path: Path) -> Iterator[str]:
    """Another database on the same server, with tables of its own."""
    name = f"elsewhere_{secrets.token_hex(4)}"
    if sql_url.startswith("sqlite"):
        url = f"sqlite:///{tmp_path / name}.db?journal=delete"
    else:
        run(f"CREATE DATABASE {name}", sql_url)
        url = urlsplit(sql_url)._replace(path=f"/{name}").geturl()
    with Once(url, scope="s") as once:
        once.migrate()
    yield url
    if not sql_url.startswith("sqlite"):
        run(f"DROP DATABASE {name}", sql_url)


def begun(connection: Any) -> Any:
    getattr(connection, "begin", lambda: None)()
    return connection


def test_a_connection_to_another_database_is_refused(sql_url: str, elsewhere: str) -> None:
    scope = secrets.token_hex(4)
    with Once(sql_url, scope=scope) as once:
        once.migrate()
        connection = begun(connect(elsewhere))
        for _ in range(2):
            with (
                pytest.raises(ConfigurationError, match="the store's records are in"),
                once.joined(connection, "pay", key="1") as attempt,
            ):
                attempt.succeed(1)
            connection.rollback()
            begun(connection)
        connection.close()

        right = begun(connect(sql_url))
        for _ in range(2):
            with once.joined(right, "pay", key="1") as attempt:
                if not attempt.replayed:
                    attempt.succeed(1)
        right.commit()
        right.close()
    with Once(elsewhere, scope=scope) as other:
        assert other.find() == []


def test_a_tasks_connection_to_another_database_is_refused(sql_url: str, elsewhere: str) -> None:
    async def join() -> None:
        async with AsyncOnce(sql_url, scope="s") as once:
            await once.migrate()
            connection = await connect_async(elsewhere)
            try:
                if sql_url.startswith("mariadb"):
                    await connection.begin()
                with pytest.raises(ConfigurationError, match="the store's records are in"):
                    async with once.joined(connection, "pay", key="1") as attempt:
                        await attempt.succeed(1)
                await connection.rollback()
            finally:
                await asyncio.gather(*filter(None, [connection.close()]))

    asyncio.run(join())


def test_one_sqlite_file_by_two_names_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "once.db")
    with Once(f"sqlite:///{tmp_path}/once.db?journal=delete", scope="s") as once:
        once.migrate()
        connection = sqlite3.connect(tmp_path / "link.db")
        with once.joined(connection, "pay", key="1") as attempt:
            assert not attempt.replayed
            attempt.succeed(1)
        connection.commit()
        connection.close()


def test_a_database_in_memory_is_not_the_stores_file(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path}/once.db?journal=delete", scope="s") as once:
        once.migrate()
        with (
            pytest.raises(ConfigurationError, match="no database"),
            once.joined(sqlite3.connect(":memory:"), "p", key="1"),
        ):
            pass
