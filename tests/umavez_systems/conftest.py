"""The systems on each of their databases: a client that talks to the whole application."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
import uvicorn

from umavez_systems.fiscal.simulador import keeper
from umavez_systems.gates.connections import options, protocol_of
from umavez_systems.server import create_app, prepare
from umavez_systems.settings import Settings

TABLES = (
    "idempotencia_operacoes",
    "clientes_historico",
    "propostas_historico",
    "propostas",
    "clientes",
    "processos_passos",
    "processos_pagamentos",
    "processos_glosas",
    "processos_demonstrativos",
    "processos_eventos",
    "processos",
    "processos_definicoes",
    "idempotency_records",
    "fiscal_provas",
    "fiscal_consumo",
    "fiscal_atos",
    "documentos_fiscais",
    "faixas_numeracao",
    "fiscal_organizacoes",
    "umavez_numbers",
    "umavez_sequence_ranges",
    "umavez_sequences",
)


@pytest.fixture(scope="session", autouse=True)
def simulators() -> Iterator[None]:
    """The simulators that applications have started in this process end before it does."""
    yield
    for process in keeper._STARTED.values():
        process.kill()
        process.wait(10)


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Each test has its own: `umavez serve` hands its settings to its workers there, whether they come to be or not."""
    with patch.dict(os.environ):
        yield


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
def settings(database: str, tmp_path: Path) -> Settings:
    """Settings for that database, with everything else as it comes; what is uploaded goes with the test."""
    return Settings(database=database, storage=str(tmp_path / "listas"))


@contextlib.contextmanager
def listening(app: Any, settings: Settings) -> Iterator[tuple[str, int]]:
    """The address of a real server with `app`, in a thread of this process."""
    listener = socket.create_server(("127.0.0.1", 0))
    given = {**options(settings), "http": protocol_of(settings)}
    server = uvicorn.Server(uvicorn.Config(app, **given))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield listener.getsockname()
    server.should_exit = True
    thread.join(30)
    listener.close()


@contextlib.contextmanager
def served(settings: Settings) -> Iterator[httpx.Client]:
    """A client of the application behind a real server, in a thread of this process."""
    prepare(settings)
    limits = httpx.Limits(max_connections=64)
    with (
        listening(create_app(settings), settings) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}", limits=limits, timeout=60) as client,
    ):
        yield client


@pytest.fixture
def serving() -> Any:
    """`served`, for tests that need settings of their own."""
    return served


@pytest.fixture
def client(settings: Settings) -> Iterator[httpx.Client]:
    """A client of the application."""
    with served(settings) as made:
        yield made
