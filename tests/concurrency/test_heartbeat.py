"""Heartbeats: nothing ends them but closing, and one slow beat keeps no other waiting."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from umavez import AsyncOnce, ClaimLost, Once, StoreUnavailable
from umavez.concurrency.heartbeat import SIDE_BY_SIDE, AsyncHeartbeats, Heartbeats
from umavez.stores.memory import AsyncMemoryStore, MemoryStore
from umavez.testing import ManualClock

LEASE = 0.06
PATIENCE = 10.0


class Leased:
    """An attempt that counts its beats; `trouble` is raised by each, `gate` holds each up."""

    def __init__(self, trouble: BaseException | None = None, gate: threading.Event | None = None) -> None:
        self.done = self.lost = False
        self.plan = SimpleNamespace(policy=SimpleNamespace(lease=LEASE))
        self.renewed_at = time.monotonic()
        self.trouble = trouble
        self.gate = gate
        self.beats = 0

    def renew(self) -> None:
        self.beats += 1
        if self.gate is not None:
            assert self.gate.wait(PATIENCE)
        if self.trouble is not None:
            raise self.trouble


class AsyncLeased(Leased):
    """The same, awaited."""

    hold: asyncio.Event | None = None

    async def renew(self) -> None:  # type: ignore[override]  # awaited
        self.beats += 1
        if self.hold is not None:
            await self.hold.wait()
        if self.trouble is not None:
            raise self.trouble


def eventually(true: Any) -> bool:
    end = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < end:
        time.sleep(0.002)
    return bool(true())


async def soon(true: Any) -> bool:
    end = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < end:  # noqa: ASYNC110  # what it waits for is counted in threads too
        await asyncio.sleep(0.002)
    return bool(true())


@pytest.fixture
def heartbeats() -> Any:
    made = Heartbeats()
    yield made
    made.close()


@pytest.mark.parametrize(
    "trouble", [StoreUnavailable("away"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), KeyError()]
)
def test_no_error_of_one_beat_ends_the_beats(heartbeats: Heartbeats, trouble: Exception) -> None:
    bad, good = Leased(trouble), Leased()
    heartbeats.add(bad)
    heartbeats.add(good)

    assert eventually(lambda: bad.beats >= 3 and good.beats >= 3)


def test_a_claim_that_is_lost_is_no_longer_beaten(heartbeats: Heartbeats) -> None:
    from umavez.core.key import Key

    lost, good = Leased(ClaimLost(Key("a", "b", "c"))), Leased()
    heartbeats.add(lost)
    heartbeats.add(good)

    assert eventually(lambda: good.beats >= 3)
    assert lost.beats == 1


def test_a_beat_that_waits_keeps_no_other_waiting(heartbeats: Heartbeats) -> None:
    gate, before = threading.Event(), threading.active_count()
    slow = [Leased(gate=gate) for _ in range(SIDE_BY_SIDE - 1)]
    good = [Leased() for _ in range(20)]
    for attempt in (*slow, *good):
        heartbeats.add(attempt)
    try:
        assert eventually(lambda: all(attempt.beats >= 3 for attempt in good))
        assert all(attempt.beats == 1 for attempt in slow), "a beat under way is not begun again"
        # One that looks beside those that beat; what other tests have left running is not counted.
        assert threading.active_count() <= before + SIDE_BY_SIDE + 1
    finally:
        gate.set()


def test_closed_they_begin_again_with_the_next_attempt(heartbeats: Heartbeats) -> None:
    for _ in range(30):
        attempt = Leased()
        heartbeats.add(attempt)
        heartbeats.close()
        again = Leased()
        heartbeats.add(again)
        assert eventually(lambda again=again: again.beats >= 1)
        heartbeats.discard(again)
        heartbeats.discard(attempt)


def test_tasks_beat_side_by_side_and_no_error_ends_them() -> None:
    async def story() -> None:
        heartbeats = AsyncHeartbeats()
        slow, bad, good = AsyncLeased(), AsyncLeased(KeyError()), AsyncLeased()
        slow.hold = asyncio.Event()
        for attempt in (slow, bad, good):
            heartbeats.add(attempt)
        assert await soon(lambda: bad.beats >= 3 and good.beats >= 3)
        assert slow.beats == 1
        await heartbeats.close()
        again = AsyncLeased()
        heartbeats.add(again)
        assert await soon(lambda: again.beats >= 1)
        await heartbeats.close()

    asyncio.run(story())


def test_attempts_of_a_loop_that_ended_are_not_beaten_in_the_next() -> None:
    heartbeats = AsyncHeartbeats()
    left = AsyncLeased()

    async def first() -> None:
        heartbeats.add(left)

    async def second() -> int:
        attempt = AsyncLeased()
        heartbeats.add(attempt)
        assert await soon(lambda: attempt.beats >= 2)
        await heartbeats.close()
        return left.beats

    asyncio.run(first())
    assert asyncio.run(second()) == 0


class Away(MemoryStore):
    """A store that takes no beats while it is `away`."""

    away = False

    def swap(self, expected: str | None, draft: Any) -> Any:
        if self.away:
            raise StoreUnavailable("away")
        return super().swap(expected, draft)


def test_a_claim_without_a_beat_for_a_whole_lease_still_settles_if_nobody_took_it() -> None:
    """Declared lost by a timer alone, its outcome would be thrown away and its effect repeated."""
    store = Away(ManualClock())
    once = Once(store, scope="shop")
    with once.attempt("pay", key="1", unknown="rerun", lease=0.06) as attempt:
        store.away = True
        time.sleep(0.2)
        store.away = False
        attempt.succeed("paid")

    assert once.run("pay", key="1", call=lambda: "again", unknown="rerun").value == "paid"
    once.close()


def apart(what: Any, *args: Any, **options: Any) -> Any:
    """The result of `what` as another caller would get it, outside of the attempt around this code."""
    return contextvars.Context().run(what, *args, **options)


@pytest.mark.parametrize("frozen", [True, False])
def test_checking_asks_the_store_after_a_freeze(frozen: bool) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    once, other = Once(store, scope="shop"), Once(store, scope="shop")
    with pytest.raises(ClaimLost), once.attempt("pay", key="1", unknown="rerun", lease=30, heartbeat=False) as attempt:
        clock.advance(31)
        apart(other.run, "pay", key="1", call=lambda: "theirs", unknown="rerun")
        if frozen:
            attempt.renewed_at -= 16
            attempt.check()
            raise AssertionError("it was let through")
        attempt.check()
        attempt.succeed("mine")


def test_checking_asks_the_store_after_a_freeze_for_tasks() -> None:
    async def story() -> None:
        clock = ManualClock()
        store = AsyncMemoryStore(clock)
        once, other = AsyncOnce(store, scope="shop"), AsyncOnce(store, scope="shop")

        async def theirs() -> str:
            return "theirs"

        with pytest.raises(ClaimLost):
            async with once.attempt("pay", key="1", unknown="rerun", lease=30, heartbeat=False) as attempt:
                clock.advance(31)
                task = apart(asyncio.create_task, other.run("pay", key="1", call=theirs, unknown="rerun"))
                await task
                attempt.renewed_at -= 16
                await attempt.check()
                raise AssertionError("it was let through")

    asyncio.run(story())


def test_a_process_is_announced_while_it_claims_and_not_after_it_was_closed() -> None:
    told: list[float] = []
    began, goes_on = threading.Event(), threading.Event()

    def announce() -> None:
        began.set()
        goes_on.wait(PATIENCE)
        told.append(time.monotonic())

    heartbeats = Heartbeats(announce)
    attempt = Leased()
    heartbeats.add(attempt)
    assert began.wait(PATIENCE)
    assert eventually(lambda: attempt.beats >= 3), "a store that does not answer keeps no beat waiting"
    goes_on.set()
    heartbeats.close()

    assert len(told) == 1, "closed after the announcement, and once within half a minute"


def test_a_process_of_tasks_is_announced_too() -> None:
    told: list[str] = []

    async def announce() -> None:
        told.append("here")

    async def claim() -> None:
        heartbeats = AsyncHeartbeats(announce)
        attempt = AsyncLeased()
        heartbeats.add(attempt)
        assert await soon(lambda: attempt.beats >= 2 and told)
        await heartbeats.close()

    asyncio.run(claim())
    assert told == ["here"]
