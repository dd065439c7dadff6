"""Mailing on each database: empty tables, and what tests do again and again."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from httpx import Client, Response

from tests.umavez_systems.conftest import served
from umavez_systems.server import prepare
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

READY: set[str] = set()
TABLES = (
    *("mailing_entries", "mailings", "mailing_suppressions", "mailing_templates", "mailing_limits", "mailing_sink"),
    *("mailing_history", "idempotency_records", "umavez_outbox", "umavez_deliveries", "umavez_subscriptions"),
)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with all tables, to be copied."""
    path = tmp_path_factory.mktemp("prepared") / "empty.db"
    prepare(Settings(database=f"sqlite:///{path}"))
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with empty tables."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("prepared"), tmp_path / "mailing.db")
        return f"sqlite:///{tmp_path}/mailing.db"
    url: str = request.getfixturevalue("postgres_url")
    if url not in READY:
        prepare(Settings(database=url))
        READY.add(url)
    with psycopg.connect(url) as connection:
        # Far faster than TRUNCATE for the few rows of a test.
        connection.execute("; ".join(f"DELETE FROM {table}" for table in TABLES).encode())
    return url


@pytest.fixture
def settings(database: str, tmp_path: Path) -> Settings:
    """Settings for that database; nothing runs beside the server."""
    return Settings(database=database, storage=f"{tmp_path}/lists", mailing_embedded="off")


@pytest.fixture
def carrier(settings: Settings) -> Iterator[Carrier]:
    """The systems without a server."""
    made = Carrier(settings)
    yield made
    made.close()


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Settings, Client]]:
    """A server that the tests of a module share."""
    folder = tmp_path_factory.mktemp("house")
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("prepared"), folder / "mailing.db")
        database = f"sqlite:///{folder}/mailing.db"
    else:
        database = request.getfixturevalue("postgres_url")
    settings = Settings(database=database, storage=f"{folder}/lists", mailing_embedded="off")
    with served(settings) as client:
        yield settings, client


@pytest.fixture
def client_settings(house: tuple[Settings, Client]) -> Settings:
    """The settings of that server."""
    return house[0]


@pytest.fixture
def client(house: tuple[Settings, Client]) -> Client:
    """A client of that server; the tables are empty."""
    settings, made = house
    for table in TABLES:
        query(settings, f"DELETE FROM {table}")
    shutil.rmtree(settings.storage, ignore_errors=True)
    Path(settings.storage).mkdir()
    return made


@pytest.fixture
def beside(client_settings: Settings) -> Iterator[Carrier]:
    """The systems of the shared server's database, in this process."""
    made = Carrier(client_settings)
    yield made
    made.close()


def query(settings: Settings, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a statement, behind the application's back; committed."""
    if settings.database.startswith("sqlite"):
        connection = sqlite3.connect(settings.database.removeprefix("sqlite:///"), timeout=30)
        try:
            with connection:
                return connection.execute(sql).fetchall()
        finally:
            connection.close()
    with psycopg.connect(settings.database) as server:
        cursor = server.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def send(client: Client, name: str, content: bytes | str, **fields: str) -> Response:
    """Upload a list."""
    data = content.encode() if isinstance(content, str) else content
    headers = {"Idempotency-Key": fields.pop("key")} if "key" in fields else {}
    return client.post("/mailings", files={"file": (name, data, "text/csv")}, data=fields, headers=headers)
