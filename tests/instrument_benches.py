"""Fixtures for tests of instruments: one bench for each store, sync and async."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from umavez.stores import open_async_store, open_store
from umavez.testing import ManualClock
from umavez.testing.instruments import InstrumentBench

SERVERS = ("postgres", "mariadb", "redis")
STORES = ["memory", "sqlite", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in SERVERS)]


@pytest.fixture(scope="module", params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param in SERVERS:
        return str(request.getfixturevalue(f"{request.param}_url"))
    if request.param == "memory":
        return "memory:"
    return f"sqlite:///{tmp_path_factory.mktemp('instruments') / 'records.db'}"


@pytest.fixture(scope="module")
def sync_store(store_url: str) -> Iterator[tuple[object, ManualClock]]:
    clock = ManualClock()
    store = open_store(store_url, clock=clock)
    store.migrate()
    yield store, clock
    store.close()


@pytest.fixture(scope="module")
def async_store(store_url: str) -> Iterator[tuple[object, ManualClock, asyncio.Runner]]:
    clock = ManualClock()
    with asyncio.Runner() as runner:
        store = open_async_store(store_url, clock=clock)
        runner.run(store.migrate())
        yield store, clock, runner
        runner.run(store.close())


@pytest.fixture
def bench(sync_store: tuple[object, ManualClock]) -> InstrumentBench:
    return InstrumentBench(*sync_store)


@pytest.fixture
def async_bench(async_store: tuple[object, ManualClock, asyncio.Runner]) -> InstrumentBench:
    return InstrumentBench(*async_store)


@pytest.fixture(params=["bench", "async_bench"])
def shop(store_url: str, request: pytest.FixtureRequest) -> InstrumentBench:
    """A bench of each kind in turn."""
    made: InstrumentBench = request.getfixturevalue(request.param)
    return made


JOINING = ["sqlite", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("postgres", "mariadb"))]


@pytest.fixture(params=JOINING)
def sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that can join a transaction; see `connect`."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'joined.db'}?journal=delete"
    return str(request.getfixturevalue(f"{request.param}_url"))


def connect(url: str) -> Any:
    """A driver's own connection to the database behind a store's URL."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        return sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0], timeout=10)
    if scheme == "postgresql":
        import psycopg

        return psycopg.connect(url)
    return _mariadb("pymysql", url)


async def connect_async(url: str) -> Any:
    """The same for tasks."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        import aiosqlite

        return await aiosqlite.connect(url.removeprefix("sqlite:///").partition("?")[0], timeout=10)
    if scheme == "postgresql":
        import psycopg

        return await psycopg.AsyncConnection.connect(url)
    return await _mariadb("asyncmy", url)


def _mariadb(driver: str, url: str) -> Any:
    from importlib import import_module

    parts = urlsplit(url)
    return import_module(driver).connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=parts.path.strip("/"),
    )
