"""Named leases: their laws on every store, heartbeats, and the proof inside a transaction."""

from __future__ import annotations

import asyncio
import random
import secrets
import selectors
import sqlite3
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import umavez._async.leases as leases_of_tasks
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
from umavez import AsyncOnce, ClaimLost, Once, OperationInProgress, StoreError, StoreUnavailable
from umavez.leases import AsyncLeases, Leases
from umavez.sql.connection import Sql
from umavez.stores import open_store
from umavez.testing import ManualClock
from umavez.testing.instruments import InstrumentBench
from umavez.testing.laws.instruments import leases as lease_laws

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
    Sql.on(connection).count(f"CREATE TABLE {table} (fence BIGINT)")
    connection.commit()
    late = leases.acquire("report", lease=30)
    once.clock.advance(31)
    leases.acquire("report", lease=30)
    Sql.on(connection).count(f"INSERT INTO {table} VALUES (?)", (late.fence,))
    with pytest.raises(ClaimLost):
        late.guard(connection)
    connection.rollback()
    assert Sql.on(connection).rows(f"SELECT COUNT(*) FROM {table}")[0][0] == 0
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
    with Once(store, scope="x") as once, Leases(once).hold("report", lease=1):

        def down(*_: Any) -> Any:
            raise StoreUnavailable("gone")

        store.swap = down  # type: ignore[method-assign]  # the store goes away while the block runs


def test_a_guard_does_not_wait_for_a_heartbeat_that_waits_for_its_transaction(sql_url: str) -> None:
    """The caller's transaction has written already; on SQLite that holds the whole file."""
    table = f"written_{secrets.token_hex(4)}"
    connection = connect(sql_url)
    Sql.on(connection).count(f"CREATE TABLE {table} (n BIGINT)")
    connection.commit()
    with Once(sql_url, scope=f"lease-{secrets.token_hex(4)}") as engine:
        engine.migrate()
        leases = Leases(engine)
        held = leases.acquire("report", lease=1.2)
        Sql.on(connection).count(f"INSERT INTO {table} VALUES (?)", (1,))
        beat = threading.Thread(target=_renew_quietly, args=(held,))
        beat.start()
        time.sleep(0.1)  # the beat is under way, and cannot end before the transaction does

        began = time.monotonic()
        held.guard(connection)
        assert time.monotonic() - began < 0.8
        connection.commit()
        beat.join(15)
        held.renew()
        leases.release(held)
    connection.close()


def _renew_quietly(held: Any) -> None:
    with suppress(StoreError):
        held.renew()


def test_a_guard_stands_though_a_heartbeat_came_between(sql_url: str) -> None:
    with Once(sql_url, scope=f"lease-{secrets.token_hex(4)}") as engine:
        engine.migrate()
        leases = Leases(engine)
        held = leases.acquire("report")
        old = held._leased._claim
        held.renew()
        newer, held._leased._claim = held._leased._claim, old
        connection = connect(sql_url)
        held.guard(connection)
        connection.commit()
        connection.close()
        held._leased._claim = newer
        held.renew()
        leases.release(held)


def test_waiting_outlasts_the_open_transaction_of_a_lapsed_holder(sql_url: str) -> None:
    """Its proof holds the record, and the store says "locked" long before the wait is over."""
    url = sql_url + ("&" if "?" in sql_url else "?") + "timeout=1"
    scope = f"lease-{secrets.token_hex(4)}"
    with Once(url, scope=scope) as first, Once(url, scope=scope) as second:
        first.migrate()
        leases = Leases(first)
        held = leases.acquire("report", lease=0.6)
        first._admission.heartbeats.discard(held._leased)
        connection = connect(sql_url)
        if isinstance(connection, sqlite3.Connection):
            connection.close()
            connection = sqlite3.connect(sql_url.removeprefix("sqlite:///").partition("?")[0], check_same_thread=False)
        held.guard(connection)
        ending = threading.Timer(3.0, connection.commit)
        ending.start()

        took = Leases(second).acquire("report", lease=5, wait=20)

        assert took.fence > held.fence
        ending.join()
        connection.close()


@pytest.mark.parametrize("seed", range(8))
def test_turns_are_shared_among_those_who_come_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In time that is only counted, so that nothing but the pauses decides who is next."""
    loop = CountedTime()
    monkeypatch.setattr(leases_of_tasks, "time", SimpleNamespace(monotonic=loop.time))
    random.seed(seed)
    turns = loop.run_until_complete(_turns_of_eight(loop, seconds=60))
    loop.close()

    assert len(turns) == 8, (seed, turns)
    assert max(turns.values()) <= 2 * min(turns.values()), (seed, turns)


class CountedTime(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while something runs and jumps to the next that is due."""

    def __init__(self) -> None:
        super().__init__(JumpingSelector(self))
        self.now = 1000.0

    def time(self) -> float:
        return self.now


class JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]  # which class it is depends on the machine
    """Waits for nothing: what was to be waited for has passed."""

    def __init__(self, loop: CountedTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now += timeout or 0.0
        return super().select(0)


async def _turns_of_eight(loop: CountedTime, seconds: float) -> Counter[int]:
    turns: Counter[int] = Counter()
    ends = loop.time() + seconds

    async def contend(number: int, leases: AsyncLeases) -> None:
        while (left := ends - loop.time()) > 0:
            with suppress(OperationInProgress):
                async with leases.hold("report", wait=left):
                    turns[number] += 1
                    await asyncio.sleep(0.005)

    async with AsyncOnce("memory:", scope="fair") as engine:
        # Each has a memory of its own of who else came, as processes have.
        await asyncio.gather(*(contend(number, AsyncLeases(engine)) for number in range(8)))
    return turns


def test_of_eight_contenders_each_gets_its_turn(tmp_path: Path) -> None:
    """On a real file, however slow it is: nobody waits for ever while the others come again and again."""
    url = f"sqlite:///{tmp_path}/leases.db"
    Once(url, scope="fair").close()
    turns: Counter[int] = Counter()
    ends = time.monotonic() + 60

    def contend(number: int) -> None:
        with Once(url, scope="fair") as engine:
            leases = Leases(engine)
            while len(turns) < 8 and (left := ends - time.monotonic()) > 0:
                with suppress(OperationInProgress), leases.hold("report", wait=left):
                    turns[number] += 1
                    time.sleep(0.005)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert len(turns) == 8, turns
