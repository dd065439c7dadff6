"""The laws of reconciliation. Each is a function of a ReconcileBench that raises AssertionError when broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umavez.core.policy import CannotTell, Happened, NotHappened
from umavez.core.record import Status
from umavez.errors import OutcomeUnknown
from umavez.reconcile import Pace, Reconciler
from umavez.testing.instruments import InstrumentBench

PACE = Pace(first=30.0, settle=10.0, max_asks=3)
OPERATION = "law of reconciling"


class ReconcileBench(InstrumentBench):
    """An engine whose operation ended without an answer, and a far side that says `answer` when it is asked."""

    reconciler: Any = Reconciler
    answer: Any = None
    asked = 0

    def doubt(self, key: str = "k") -> None:
        """An operation of which nobody knows whether it happened; long enough ago to be asked about."""
        if OPERATION not in self.once.plans.declarations:
            self.once.plans.declared(OPERATION, {"unknown": self._ask})

        def cut() -> None:
            raise ConnectionResetError("cut")

        try:
            self.once.run(OPERATION, key=key, call=cut)
        except (ConnectionResetError, OutcomeUnknown):
            self.clock.advance(PACE.settle + 1)

    def _ask(self, _question: Any) -> Any:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def reconcile(self) -> Any:
        """One pass; its report."""
        return self.reconciler(self.once, pace=PACE).run()

    def status(self, key: str = "k") -> Status:
        """Where the operation stands."""
        return Status(self.once.find(operation=OPERATION, key=key)[0].status)


Law = Callable[[ReconcileBench], None]


def what_happened_becomes_the_outcome(bench: ReconcileBench) -> None:
    """And is asked about once: the next caller gets the value, the next pass finds nothing."""
    bench.doubt()
    bench.answer = Happened(7)
    bench.reconcile()
    assert bench.status() is Status.SUCCESS, "it happened, and is not kept"
    bench.reconcile()
    assert bench.asked == 1, "what is known was asked about again"
    assert bench.once.run(OPERATION, key="k", call=lambda: 8).value == 7, "another value came than the far side's"


def what_did_not_happen_may_run_again(bench: ReconcileBench) -> None:
    """Once."""
    bench.doubt()
    bench.answer = NotHappened()
    bench.reconcile()
    assert bench.status() is Status.FAILED, "it never happened, and its key is not free"
    assert bench.once.run(OPERATION, key="k", call=lambda: 8).value == 8


def what_nobody_can_tell_stays_unknown(bench: ReconcileBench) -> None:
    """No answer, and an error in asking, are no answer."""
    for number, answer in enumerate((CannotTell("no idea"), ConnectionResetError("down"))):
        bench.doubt(str(number))
        bench.answer = answer
        bench.reconcile()
        assert bench.status(str(number)) is Status.UNKNOWN, "an outcome was guessed"


def a_far_side_is_asked_at_its_pace_and_not_for_ever(bench: ReconcileBench) -> None:
    """Not twice within a pause, and after so many questions a human decides."""
    bench.doubt()
    bench.answer = CannotTell("no idea")
    bench.reconcile()
    bench.reconcile()
    assert bench.asked == 1, "the far side was asked again at once"
    for _ in range(9):
        bench.clock.advance(86_400)
        bench.reconcile()
    assert bench.asked == PACE.max_asks, f"the far side was asked {bench.asked} times"
    assert bench.status() is Status.UNKNOWN


LAWS: tuple[Law, ...] = (
    what_happened_becomes_the_outcome,
    what_did_not_happen_may_run_again,
    what_nobody_can_tell_stays_unknown,
    a_far_side_is_asked_at_its_pace_and_not_for_ever,
)
