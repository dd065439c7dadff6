"""Leases against a model: three who come, go, renew and lapse, at a store that fails before, after or amid a write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from umavez import ClaimLost, Once, OperationInProgress
from umavez.core.flow import Stale, Swapped
from umavez.core.record import Draft
from umavez.errors import StoreError, StoreUnavailable, StoreUncertain
from umavez.leases import Leases
from umavez.stores.memory import MemoryStore
from umavez.testing import ManualClock

LEASE = 30.0
WHO = st.integers(0, 2)
FAULTS = st.lists(st.sampled_from(["", "", "before", "after", "lost"]), max_size=4)


class Flaky(MemoryStore):
    """Its next swaps fail as told: nothing written, the answer lost, or both."""

    faults: list[str]

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            raise StoreUnavailable("before")
        if fault == "lost":
            raise StoreUncertain("lost on the way there")
        reply = super().swap(expected, draft)
        if fault == "after":
            raise StoreUncertain("lost on the way back")
        return reply


@dataclass
class Holding:
    """What somebody holds, and until when the store's clock says so; None where nobody can know."""

    held: Any
    until: float | None


class Holders(RuleBasedStateMachine):
    """One name, and three engines on one store, as three processes have them."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = Flaky(self.clock)
        self.store.faults = []
        self.engines = [Once(self.store, scope="loja") for _ in range(3)]
        self.leases = [Leases(once) for once in self.engines]
        self.holding: dict[int, Holding] = {}
        self.time = 0.0
        self.fence = 0

    def teardown(self) -> None:
        for who in list(self.holding):
            self.release(who)
        for once in self.engines:
            once.close()

    def attempted(self, who: int, work: Callable[[], Any], faults: list[str]) -> Any:
        """What `work` returns; None where the store failed or the lease is not to be had."""
        self.store.faults = list(faults)
        try:
            return work()
        except (OperationInProgress, StoreError):
            return None
        except ClaimLost:
            until = self.holding.pop(who).until
            assert until is None or until <= self.time, "it was lost though nobody could have taken it"
            return None
        finally:
            self.store.faults = []

    @rule(who=WHO, faults=FAULTS)
    def acquire(self, who: int, faults: list[str]) -> None:
        held = self.attempted(who, lambda: self.leases[who].acquire("jobs", lease=LEASE), faults)
        if held is None:
            return
        assert held.fence > self.fence, "a fence was given twice, or fell"
        for one in self.holding.values():
            assert one.until is None or one.until <= self.time, "two hold it"
        self.fence = held.fence
        self.holding[who] = Holding(held, self.time + LEASE)

    @rule(who=WHO, faults=FAULTS)
    def renew(self, who: int, faults: list[str]) -> None:
        one = self.holding.get(who)
        if one is None:
            return

        def work() -> bool:
            one.held.renew()
            return True

        if self.attempted(who, work, faults):
            assert one.held.fence == self.fence, "it was renewed after somebody else had it"
            one.until = self.time + LEASE
        elif who in self.holding and one.until is not None:
            # It may have been written all the same.
            one.until = one.until if one.until > self.time else None

    @rule(who=WHO)
    def release(self, who: int) -> None:
        one = self.holding.get(who)
        if one is None:
            return
        self.attempted(who, lambda: self.leases[who].release(one.held), [])
        self.holding.pop(who, None)

    @rule(seconds=st.sampled_from([1.0, 15.0, 29.0, 30.0, 31.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.time += seconds

    @rule()
    def sweep(self) -> None:
        self.store.sweep(100)

    @invariant()
    def at_most_one_is_sure(self) -> None:
        sure = [one for one in self.holding.values() if one.until is not None and one.until > self.time]
        assert len(sure) <= 1
        assert all(one.held.fence == self.fence for one in sure)


Holders.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestHolders = Holders.TestCase
