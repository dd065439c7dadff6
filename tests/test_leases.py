"""Named leases: their laws on every store, heartbeats, and the proof inside a transaction."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from typing import Any

import pytest

from tests.instrument_benches import (
    async_bench,
    async_store,
    bench,
    connect,
    connect_async,
    sql_url,
    store_url,
    sync_store,
)
from umavez import AsyncOnce, ClaimLost, Once, OperationInProgress, StoreUnavailable
from umavez.aio_leases import AsyncLeases
from umavez.leases import Leases
from umavez.sql import Sql
from umavez.stores import open_store
from umavez.testing import ManualClock, lease_laws
from umavez.testing.instruments import InstrumentBench

__all__ = ["async_bench", "async_store", "bench", "sql_url", "store_url", "sync_store"]


@pytest.mark.parametrize("law", lease_laws.LAWS, ids=lambda law: law.__name__)
def test_leases_obey(law: lease_laws.Law, bench: InstrumentBench) -> None:
    law(bench)


@pytest.mark.parametrize("law", lease_laws.LAWS, ids=lambda law: law.__name__)
def test_async_leases_obey(law: lease_laws.Law, async_bench: InstrumentBench) -> None:
    law(async_bench)


def test_a_heartbeat_keeps_a_lease_longer_than_its_length() -> None:
    with Once("memory:", scope="x") as once:
        leases = Leases(once)
        with leases.hold("report", lease=0.15) as held:
            time.sleep(0.5)
            assert leases.try_acquire("report") is None
            held.check()


def test_a_heartbeat_keeps_a_lease_of_a_task() -> None:
    async def hold() -> None:
        async with AsyncOnce("memory:", scope="x") as once:
            leases = AsyncLeases(once)
            async with leases.hold("report", lease=0.15) as held:
                await asyncio.sleep(0.5)
                assert await leases.try_acquire("report") is None
                await held.check()

    asyncio.run(hold())


def test_a_block_that_fails_gives_the_lease_back_and_raises_its_own_error() -> None:
    with Once("memory:", scope="x") as once:
        leases = Leases(once)
        with pytest.raises(RuntimeError, match="mine"), leases.hold("report"):
            raise RuntimeError("mine")
        assert leases.try_acquire("report") is not None


def test_a_lease_lost_during_the_block_is_told_at_its_end() -> None:
    clock = ManualClock()
    with Once(open_store("memory:", clock=clock), scope="x") as once:
        leases = Leases(once)
        with pytest.raises(ClaimLost), leases.hold("report", lease=30):
            clock.advance(31)
            leases.acquire("report")


def test_waiting_gets_the_lease_when_its_holder_leaves() -> None:
    with Once("memory:", scope="x") as once:
        leases = Leases(once)
        held = leases.acquire("report")
        threading.Timer(0.05, leases.release, (held,)).start()
        assert leases.acquire("report", wait=5).fence > held.fence


def test_waiting_is_bounded() -> None:
    with Once("memory:", scope="x") as once:
        leases = Leases(once)
        leases.acquire("report", lease=30)
        began = time.monotonic()
        with pytest.raises(OperationInProgress) as busy:
            leases.acquire("report", wait=0.1)
        assert time.monotonic() - began < 2
        assert 25 < busy.value.retry_after <= 30


@pytest.fixture
def once(sql_url: str) -> Any:
    clock = ManualClock()
    store = open_store(sql_url, clock=clock)
    store.migrate()
    with Once(store, scope=f"lease-{secrets.token_hex(4)}") as engine:
        engine.clock = clock  # type: ignore[attr-defined]  # for the tests below
        yield engine


def test_a_guard_lets_the_holder_commit_and_stays_true_after_a_rollback(once: Any, sql_url: str) -> None:
    leases = Leases(once)
    held = leases.acquire("report")
    for end in ("rollback", "commit", "commit"):
        connection = connect(sql_url)
        held.guard(connection)
        getattr(connection, end)()
        connection.close()
    held.renew()


def test_a_guard_refuses_a_holder_that_was_overtaken(once: Any, sql_url: str) -> None:
    leases = Leases(once)
    table = f"written_{secrets.token_hex(4)}"
    connection = connect(sql_url)
    Sql(connection).count(f"CREATE TABLE {table} (fence BIGINT)")
    connection.commit()
    late = leases.acquire("report", lease=30)
    once.clock.advance(31)
    leases.acquire("report", lease=30)
    Sql(connection).count(f"INSERT INTO {table} VALUES (?)", (late.fence,))
    with pytest.raises(ClaimLost):
        late.guard(connection)
    connection.rollback()
    assert Sql(connection).rows(f"SELECT COUNT(*) FROM {table}")[0][0] == 0
    connection.close()


def test_a_guard_works_in_the_transaction_of_a_task(once: Any, sql_url: str) -> None:
    async def write() -> None:
        async with AsyncOnce(sql_url, scope=once.scope) as engine:
            leases = AsyncLeases(engine)
            held = await leases.acquire("report")
            connection = await connect_async(sql_url)
            await held.guard(connection)
            await connection.commit()
            await asyncio.gather(*filter(None, [connection.close()]))
            await leases.release(held)

    asyncio.run(write())


def test_a_store_that_fails_at_the_end_does_not_spoil_work_that_is_done() -> None:
    store = open_store("memory:")
    with Once(store, scope="x") as once, Leases(once).hold("report"):

        def down(*_: Any) -> Any:
            raise StoreUnavailable("gone")

        store.swap = down  # type: ignore[method-assign]  # the store goes away while the block runs
