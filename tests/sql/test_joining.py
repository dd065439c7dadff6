"""SQLAlchemy's objects lead to the driver's connection, inside SQLAlchemy's own transaction."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from umavez.core.flow import Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Status
from umavez.errors import ConfigurationError, StoreUnavailable
from umavez.sql.joining import async_driver_connection, driver_connection
from umavez.stores import open_async_store, open_store

SYNC = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
ASYNC = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+psycopg", "mariadb": "mariadb+asyncmy"}
CONNECTIONS = {
    "sqlite": ("sqlite3", "aiosqlite"),
    "postgres": ("psycopg", "psycopg"),
    "mariadb": ("pymysql", "asyncmy"),
}


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store's URL with its tables made, and a table `ledger` for the caller's own work."""
    url = f"sqlite:///{tmp_path / 'joined.db'}?journal=delete"
    if backend != "sqlite":
        url = str(request.getfixturevalue(f"{backend}_url"))
    with closing(open_store(url)) as store:
        store.migrate()
    engine = create_engine(_renamed(url, SYNC[backend]), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS ledger (entry VARCHAR(64))"))
    return url


def _renamed(url: str, dialect: str) -> Any:
    return make_url(url.partition("?")[0]).set(drivername=dialect)


@pytest.fixture
def engine(url: str, backend: str) -> Iterator[Engine]:
    engine = create_engine(_renamed(url, SYNC[backend]), poolclass=NullPool)
    yield engine
    engine.dispose()


@asynccontextmanager
async def async_engine(url: str, backend: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(_renamed(url, ASYNC[backend]), poolclass=NullPool)
    yield engine
    await engine.dispose()


def claim() -> Draft:
    return Draft(Key("joining", "test", secrets.token_hex(8)), "a", Status.PENDING, True, 1, 30_000)


def write(entry: str) -> Any:
    return text("INSERT INTO ledger VALUES (:entry)").bindparams(entry=entry)


def both(url: str, engine: Engine, draft: Draft) -> tuple[bool, bool]:
    """Whether the record stands, and whether the caller's own row does."""
    with closing(open_store(url)) as store, engine.connect() as connection:
        record = store.read(draft.key).current
        count = text("SELECT count(*) FROM ledger WHERE entry = :entry")
        rows = connection.execute(count, {"entry": draft.key.value}).scalar()
        return record is not None, rows == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("kind", ["connection", "session", "scoped session"])
@pytest.mark.parametrize("first", ["claim", "work"])
def test_our_claim_ends_with_sqlalchemys_own_work(url: str, engine: Engine, kind: str, end: str, first: str) -> None:
    draft = claim()
    store = open_store(url)
    if kind == "connection":
        work: Any = engine.connect()
    else:
        work = Session(engine) if kind == "session" else scoped_session(sessionmaker(engine))
    if first == "work":
        work.execute(write(draft.key.value))
    assert isinstance(store.joined(driver_connection(work)).swap(None, draft), Swapped)
    if first == "claim":
        work.execute(write(draft.key.value))
    getattr(work, end)()
    work.close()
    assert both(url, engine, draft) == (end == "commit", end == "commit")
    store.close()


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("kind", ["connection", "session"])
@pytest.mark.parametrize("first", ["claim", "work"])
def test_our_claim_ends_with_async_sqlalchemys_own_work(
    url: str, engine: Engine, backend: str, kind: str, end: str, first: str
) -> None:
    draft = claim()

    async def play() -> None:
        store = open_async_store(url)
        async with async_engine(url, backend) as awaited:
            work = AsyncSession(awaited) if kind == "session" else await awaited.connect()
            if first == "work":
                await work.execute(write(draft.key.value))
            reply = await store.joined(await async_driver_connection(work)).swap(None, draft)
            assert isinstance(reply, Swapped)
            if first == "claim":
                await work.execute(write(draft.key.value))
            await getattr(work, end)()
            await work.close()
        await store.close()

    asyncio.run(play())
    assert both(url, engine, draft) == (end == "commit", end == "commit")


def test_a_block_that_begins_a_transaction_is_joined(url: str, engine: Engine, backend: str) -> None:
    draft = claim()
    with closing(open_store(url)) as store:
        with engine.begin() as connection:
            raw = driver_connection(connection)
            assert type(raw).__module__.partition(".")[0] == CONNECTIONS[backend][0]
            store.joined(raw).swap(None, draft)
        with Session(engine) as session, session.begin():
            assert isinstance(store.joined(driver_connection(session)).swap(None, draft), Stale)


def test_anything_else_is_returned_as_it_is(url: str, engine: Engine, backend: str) -> None:
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert driver_connection(raw) is raw
        assert asyncio.run(async_driver_connection(raw)) is raw
    for thing in (None, object(), "text"):
        assert driver_connection(thing) is thing


def test_what_cannot_be_joined_is_told_in_one_sentence(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    closed = engine.connect()
    closed.close()
    broken = Session(create_engine(f"sqlite:///{tmp_path / 'none' / 'a.db'}"))
    with pytest.raises(ConfigurationError, match="closed"):
        driver_connection(closed)
    with pytest.raises(ConfigurationError, match="Engine"):
        driver_connection(engine)
    with pytest.raises(StoreUnavailable, match="could not reach"):
        driver_connection(broken)
    with pytest.raises(ConfigurationError, match="asynchronous"):
        driver_connection(AsyncSession())
    with pytest.raises(ConfigurationError, match="not asynchronous"):
        asyncio.run(async_driver_connection(broken))
    with pytest.raises(ConfigurationError, match="cannot be joined"):
        driver_connection(Session())
    engine.dispose()


def test_an_async_connection_that_is_not_open_is_told(tmp_path: Path) -> None:
    async def play() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}", poolclass=NullPool)
        closed = await engine.connect()
        await closed.close()
        with pytest.raises(ConfigurationError):
            await async_driver_connection(closed)
        with pytest.raises(ConfigurationError):
            await async_driver_connection(engine.connect())
        with pytest.raises(ConfigurationError):
            await async_driver_connection(engine)
        await engine.dispose()

    asyncio.run(play())


def test_sqlalchemy_is_not_imported_for_those_who_do_not_use_it() -> None:
    code = (
        "import sys; from umavez.sql.joining import driver_connection; driver_connection(object());"
        "sys.exit('sqlalchemy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
