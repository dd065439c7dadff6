"""How tasks wait for PostgreSQL: the socket stays registered with the loop, and never longer than its connection."""

from __future__ import annotations

import asyncio
import gc
import secrets
import socket
import weakref
from typing import Any

import pytest

from umavez.core.flow import Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Status
from umavez.stores.postgres import store as postgres
from umavez.stores.postgres.readiness import AsyncReadiness


def claim() -> Draft:
    return Draft(Key("readiness", "charge", secrets.token_hex(8)), "s", Status.PENDING, True, 1, 30_000)


class Open:
    """As much of a connection as AsyncReadiness knows, with a socket pair for it."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.socket = self.near.fileno()

    @property
    def pgconn(self) -> Open:
        return self

    def close(self) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture
def url(postgres_url: str) -> str:
    postgres.PostgresStore(postgres_url).migrate()
    return f"{postgres_url}?lanes=1"


def test_a_store_serves_one_loop_after_another(url: str) -> None:
    store = postgres.AsyncPostgresStore(url)

    async def backend() -> int:
        assert isinstance(await store.swap(None, claim()), Swapped)
        return int(store._lanes[0].connection._session.connection.info.backend_pid)

    assert len({asyncio.run(backend()) for _ in range(3)}) == 1
    asyncio.run(store.close())


def test_a_readiness_wakes_its_task_each_time() -> None:
    connection: Any = Open()

    async def story() -> None:
        readiness = AsyncReadiness(connection, 30.0)
        for _ in range(3):
            readiness.until = None
            ready = readiness.readable()
            connection.far.send(b"x")
            await asyncio.wait_for(ready, 5)
            connection.near.recv(1)
        readiness.stop()

    asyncio.run(story())
    connection.close()


def test_a_readiness_that_nobody_waits_for_leaves_the_loop() -> None:
    """A socket whose other end hung up can be read for ever; the loop must not run hot on it."""
    connection: Any = Open()

    async def story() -> bool:
        loop = asyncio.get_running_loop()
        readiness = AsyncReadiness(connection, 30.0)
        ready = readiness.readable()
        connection.far.close()
        await asyncio.wait_for(ready, 5)
        for _ in range(10):
            await asyncio.sleep(0)
        return loop.remove_reader(connection.socket)

    assert asyncio.run(story()) is False
    connection.close()


def test_a_closed_store_leaves_nothing_with_the_loop(url: str) -> None:
    async def story() -> bool:
        store = postgres.AsyncPostgresStore(url)
        await store.swap(None, claim())
        descriptor = store._lanes[0].connection._session.pgconn.socket
        await store.close()
        return asyncio.get_running_loop().remove_reader(descriptor)

    assert asyncio.run(story()) is False


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_abandoned_store_gives_its_connection_back(url: str) -> None:
    """Though the loop knew its socket; and not before the loop has forgotten it."""

    async def story() -> tuple[bool, Any]:
        store = postgres.AsyncPostgresStore(url)
        await store.swap(None, claim())
        session = store._lanes[0].connection._session
        descriptor, connection = session.pgconn.socket, weakref.ref(session.connection)
        del store, session
        gc.collect()
        held = connection() is not None
        await asyncio.sleep(0)
        gc.collect()
        assert asyncio.get_running_loop().remove_reader(descriptor) is False
        return held, connection()

    assert asyncio.run(story()) == (True, None)
