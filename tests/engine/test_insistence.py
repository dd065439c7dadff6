"""A store that is away when an attempt ends: how long recording the outcome is tried, and what is said afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from umavez import Once, Status, StoreUnavailable, StoreUncertain
from umavez.core.record import Draft
from umavez.stores.memory import MemoryStore


class Clock:
    """Stands in for the time module of the attempt; a sleep lets time pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Away(MemoryStore):
    """Refuses every write after the claim for so many seconds."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__()
        self.watch, self.back = clock, clock.now + seconds
        self.losing: list[str] = []
        """What becomes of the next swaps: "answer" is lost after writing, "away" is refused."""

    def swap(self, expected: str | None, draft: Draft) -> Any:
        word = self.losing.pop(0) if self.losing else ""
        if word == "away" or (expected is not None and self.watch.now < self.back):
            raise StoreUnavailable("not reached")
        reply = super().swap(expected, draft)
        if word == "answer":
            raise StoreUncertain("the connection broke")
        return reply


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("umavez._sync.attempt.time", made)
    monkeypatch.setattr("umavez.engine.insistence.time", made)
    return made


def pay(once: Once, call: Any, **options: Any) -> Any:
    return once.run("pay", key="1", call=call, unknown="hold", heartbeat=False, **options).value


def test_an_outcome_is_recorded_after_an_outage_that_ends_before_the_lease(clock: Clock) -> None:
    once = Once(Away(clock, 12), scope="shop")
    assert pay(once, lambda: "paid", lease=30) == "paid"
    assert 12 <= clock.now - 1000 < 14
    assert once.find()[0].status is Status.SUCCESS


def test_nobody_insists_longer_than_the_lease(clock: Clock) -> None:
    with pytest.raises(StoreUnavailable):
        pay(Once(Away(clock, 1e9), scope="shop"), lambda: "paid", lease=20)
    assert 20 <= clock.now - 1000 < 22


def test_what_the_call_itself_took_is_part_of_the_lease(clock: Clock) -> None:
    with pytest.raises(StoreUnavailable):
        pay(Once(Away(clock, 1e9), scope="shop"), lambda: clock.sleep(15), lease=20)
    assert 20 <= clock.now - 1000 < 22


def test_a_doubt_does_not_keep_its_caller(clock: Clock) -> None:
    """The lapsed lease will say the same."""

    def broken() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        pay(Once(Away(clock, 1e9), scope="shop"), broken, lease=30)
    assert clock.now - 1000 < 2


def test_a_claim_that_may_stand_is_not_called_unwritten(clock: Clock) -> None:
    store = Away(clock, 0)
    store.losing = ["answer", "away"]
    with pytest.raises(StoreUncertain):
        pay(Once(store, scope="shop"), lambda: "paid")


def test_a_settlement_that_may_stand_is_not_called_unwritten(clock: Clock) -> None:
    store = Away(clock, 0)

    def charged() -> str:
        store.losing = ["answer", *["away"] * 50]
        return "paid"

    once = Once(store, scope="shop")
    with pytest.raises(StoreUncertain):
        pay(once, charged, lease=5)
    store.losing = []
    assert pay(once, lambda: "paid twice") == "paid"
