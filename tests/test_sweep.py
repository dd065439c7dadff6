"""The sweep: batched, one at a time, and blind to what runs or is unknown."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.instrument_benches import async_bench, async_store, bench, shop, store_url, sync_store
from umavez import AsyncOnce, ConfigurationError, Key, Once, Policy, Status
from umavez.core.record import Draft, Settled
from umavez.leases import Leases
from umavez.stores import open_store
from umavez.sweep import KEEP_24_HOURS, KEEP_30_DAYS, AsyncSweeper, Sweeper
from umavez.testing import ManualClock
from umavez.testing.instruments import InstrumentBench

__all__ = ["async_bench", "async_store", "bench", "shop", "store_url", "sync_store"]


def put(shop: InstrumentBench, key: str, status: Status, keep: int | None, lease: int | None = None) -> None:
    settled = Settled(True, "1") if status is Status.SUCCESS else None
    draft = Draft(Key(shop.scope, "pay", key), f"{shop.scope}-{key}", status, True, 1, lease, keep, settled=settled)
    shop.do(shop.once.store.swap(None, draft))


def left(shop: InstrumentBench) -> list[str]:
    return sorted(record.key.value for record in shop.do(shop.once.find(operation="pay", limit=1000)))


def sweep(shop: InstrumentBench, **options: Any) -> Any:
    return shop.do(shop.pick(Sweeper, AsyncSweeper)(shop.once, **{"pause": 0.0, **options}).run())


def test_what_runs_or_is_unknown_is_never_deleted(shop: InstrumentBench) -> None:
    put(shop, "running", Status.PENDING, None, 1000)
    put(shop, "unknown", Status.UNKNOWN, None)
    put(shop, "kept", Status.SUCCESS, 400 * 86_400_000)
    put(shop, "past", Status.SUCCESS, 1000)
    put(shop, "failed", Status.FAILED, 1000)
    shop.clock.advance(365 * 86_400)
    assert sweep(shop).deleted >= 2
    assert left(shop) == ["kept", "running", "unknown"]


def test_batches_and_a_limit_bound_a_pass(shop: InstrumentBench) -> None:
    for number in range(25):
        put(shop, f"k{number:02}", Status.SUCCESS, 1000)
    shop.clock.advance(100 * 86_400)
    first = sweep(shop, batch=5, limit=10)
    assert (first.deleted, first.batches, first.stopped) == (10, 2, "reached its limit")
    assert sweep(shop, batch=5).deleted >= 15
    assert left(shop) == []


def test_older_than_leaves_what_expired_lately(shop: InstrumentBench) -> None:
    put(shop, "k", Status.SUCCESS, 1000)
    shop.clock.advance(3600)
    sweep(shop, older_than=7200)
    assert left(shop) == ["k"]
    shop.clock.advance(7200)
    sweep(shop, older_than=7200)
    assert left(shop) == []


def test_one_sweeper_at_a_time_and_the_next_after_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'two.db'}"
    with Once(url, scope="one") as one, Once(url, scope="two") as two:
        leases = Leases(one, "umavez")
        held = leases.acquire("sweep")
        assert Sweeper(two).run() == (0, 0, "another process is sweeping")
        leases.release(held)
        assert Sweeper(two).run() == (0, 1, "")


def test_a_sweeper_that_was_overtaken_stops() -> None:
    clock = ManualClock()
    store = open_store("memory:", clock=clock)
    with Once(store, scope="x") as once:
        for number in range(10):
            store.swap(None, Draft(Key("x", "pay", str(number)), str(number), Status.FAILED, True, keep=1))
        clock.advance(10)
        sweeper = Sweeper(once, batch=2, pause=0.0)
        leases = Leases(once, "umavez")
        real = store.sweep

        def frozen(limit: int, older_than: int = 0) -> int:
            clock.advance(61)
            leases.acquire("sweep", lease=600)
            store.sweep = real  # type: ignore[method-assign]  # frozen once
            late = sweeper._leases._heartbeats
            for leased in list(late.attempts):
                leased.renewed_at -= 61
            return real(limit, older_than)

        store.sweep = frozen  # type: ignore[method-assign]  # the process freezes inside its first batch
        swept = sweeper.run()
    assert (swept.deleted, swept.stopped) == (2, "another process took over")


def test_the_defaults_of_the_seeds_are_a_day_and_thirty_days() -> None:
    assert Policy("hold").keep == KEEP_24_HOURS == 86_400
    assert KEEP_30_DAYS == 30 * 86_400


def test_a_sweep_without_sense_is_refused() -> None:
    with Once("memory:", scope="x") as once, pytest.raises(ConfigurationError):
        Sweeper(once, batch=0)


def test_the_service_sweeps_on_schedule_until_it_is_stopped() -> None:
    stop, results = threading.Event(), []

    def told(swept: Any) -> None:
        results.append(swept)
        if len(results) == 3:
            stop.set()

    with Once("memory:", scope="x") as once:
        Sweeper(once).serve(stop, every=0.001, told=told)
    assert [swept.stopped for swept in results] == ["", "", ""]


def test_the_service_for_tasks_sweeps_until_it_is_stopped() -> None:
    async def serve() -> int:
        stop, results = asyncio.Event(), []

        def told(swept: Any) -> None:
            results.append(swept)
            if len(results) == 3:
                stop.set()

        async with AsyncOnce("memory:", scope="x") as once:
            await AsyncSweeper(once).serve(stop, every=0.001, told=told)
        return len(results)

    assert asyncio.run(serve()) == 3
