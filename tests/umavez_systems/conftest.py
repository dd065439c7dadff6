"""The systems on each of their databases: a client that talks to the whole application."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from umavez_systems.server import create_app, prepare
from umavez_systems.settings import Settings

TABLES = (
    "propostas_historico",
    "propostas",
    "clientes",
    "processos_passos",
    "processos",
    "processos_definicoes",
    "idempotency_records",
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with empty tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/systems.db"
    url: str = request.getfixturevalue("postgres_url")
    emptied(url)
    return url


def emptied(url: str) -> None:
    """Forget what an earlier test left: ids start at 1 again, as the seed's examples expect."""
    import psycopg

    prepare(Settings(database=url))
    with psycopg.connect(url) as connection:
        connection.execute(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY CASCADE")


@pytest.fixture
def settings(database: str) -> Settings:
    """Settings for that database, with everything else as it comes."""
    return Settings(database=database)


@contextlib.contextmanager
def served(settings: Settings) -> Iterator[httpx.Client]:
    """A client of the application behind a real server, in a thread of this process."""
    prepare(settings)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(settings), log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    limits = httpx.Limits(max_connections=64)
    with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", limits=limits, timeout=60) as client:
        yield client
    server.should_exit = True
    thread.join(30)
    listener.close()


@pytest.fixture
def serving() -> Any:
    """`served`, for tests that need settings of their own."""
    return served


@pytest.fixture
def client(settings: Settings) -> Iterator[httpx.Client]:
    """A client of the application."""
    with served(settings) as made:
        yield made
