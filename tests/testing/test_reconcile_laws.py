"""The laws of reconciliation: kept by the reconciler, and broken by those that are broken on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from umavez import NotHappened
from umavez.core.asking import GiveUp, consequence
from umavez.core.reconciliation import Pace
from umavez.reconcile import Reconciler, Report
from umavez.stores.memory import MemoryStore
from umavez.testing import ManualClock
from umavez.testing.laws.instruments import reconcile as laws


def bench(reconciler: Any = Reconciler) -> laws.ReconcileBench:
    clock = ManualClock()
    made = laws.ReconcileBench(MemoryStore(clock), clock)
    made.reconciler = reconciler
    return made


@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_the_reconciler_obeys(law: laws.Law) -> None:
    law(bench())


class Idle(Reconciler):
    """Never asks."""

    def run(self) -> Report:
        return Report()


class Restless(Reconciler):
    """Asks whenever it can."""

    def __init__(self, once: Any, *, pace: Pace) -> None:
        super().__init__(once, pace=Pace(first=0, settle=0, max_asks=1000))


class Believing(Reconciler):
    """Takes silence for no."""

    def _asked(self, plan: Any, asking: Any, stop: Any) -> str:
        ask = self._admission.ask

        def believed(doubtful: Any, *how: Any) -> Any:
            answer = ask(doubtful, *how)
            return consequence(NotHappened(), doubtful, plan.policy) if isinstance(answer, GiveUp) else answer

        self._admission.ask = believed  # type: ignore[method-assign]  # broken on purpose
        try:
            return super()._asked(plan, asking, stop)
        finally:
            self._admission.ask = ask  # type: ignore[method-assign]  # the same


BROKEN = [
    (Idle, laws.what_happened_becomes_the_outcome),
    (Idle, laws.what_did_not_happen_may_run_again),
    (Believing, laws.what_nobody_can_tell_stays_unknown),
    (Restless, laws.a_far_side_is_asked_at_its_pace_and_not_for_ever),
]


@pytest.mark.parametrize(("reconciler", "law"), BROKEN)
def test_the_law_that_names_the_fault_catches_it(reconciler: Any, law: laws.Law) -> None:
    with pytest.raises(AssertionError):
        law(bench(reconciler))
