"""The engine, stopped at each call to its store, for each way to treat an unknown outcome."""

from __future__ import annotations

from typing import Any

import pytest

from umavez import Happened, NotHappened, Once, OutcomeUnknown
from umavez.core.record import Query, Status
from umavez.stores import Store
from umavez.testing.crash import Crash, Died, Dying, Ledger, crash_everywhere


def charge(store: Store, ledger: Ledger, unknown: Any) -> Any:
    once = Once(store, scope="shop")
    with once.attempt("charge", key="42", unknown=unknown, heartbeat=False) as attempt:
        if not attempt.replayed:
            attempt.checkpoint("about to charge")
            attempt.succeed(ledger.enter("42", attempt.downstream_key()))
    return attempt.outcome


def asking(ledger: Ledger) -> Any:
    return lambda _: Happened(1) if ledger.has("42") else NotHappened()


def crashes(unknown: Any) -> list[Crash]:
    found = list(crash_everywhere(lambda store, ledger: charge(store, ledger, unknown)))
    assert len(found) == 6, "claim, checkpoint and settle, before and after each"
    return found


def test_with_rerun_an_effect_repeats_only_under_the_same_downstream_key() -> None:
    repeated = 0
    for crash in crashes("rerun"):
        assert set(crash.ledger.entries) == {crash.ledger.entries[0]}
        assert crash.answers[-1] == crash.answers[0]
        assert [record.status for record in crash.records] == [Status.SUCCESS]
        repeated += len(crash.ledger.entries) > 1

    assert repeated == 1, "only dying between effect and settling repeats it"


def test_with_hold_an_effect_never_repeats_and_doubt_waits_for_a_human() -> None:
    endings = set()
    for crash in crashes("hold"):
        assert len(crash.ledger.entries) <= 1
        (record,) = crash.records
        endings.add(record.status)
        if record.status is Status.UNKNOWN:
            assert all(isinstance(answer, OutcomeUnknown) for answer in crash.answers)
        else:
            assert crash.answers == (1, 1, 1)

    assert endings == {Status.UNKNOWN, Status.SUCCESS}


def test_with_ask_an_effect_happens_exactly_once_and_is_adopted() -> None:
    adopted = 0
    for crash in _asked():
        assert len(crash.ledger.entries) == 1
        assert crash.answers == (1, 1, 1)
        (record,) = crash.records
        assert record.status is Status.SUCCESS
        adopted += "adopted" in (record.evidence or "")

    assert adopted == 1


def _asked() -> list[Crash]:
    return list(crash_everywhere(lambda store, ledger: charge(store, ledger, asking(ledger))))


@pytest.mark.parametrize("effect_before", [True, False])
def test_dying_while_asking_about_a_death_neither_repeats_nor_loses_the_effect(effect_before: bool) -> None:
    """The second process dies as well, at each point of taking over, asking, adopting or rerunning."""

    def die_first(store: Store, ledger: Ledger) -> None:
        try:
            charge(Dying(store, 3, "before") if effect_before else Dying(store, 1, "after"), ledger, "hold")
        except Died:
            return

    found = list(crash_everywhere(lambda store, ledger: charge(store, ledger, asking(ledger)), prepare=die_first))

    assert len(found) >= 6
    for crash in found:
        assert len(crash.ledger.entries) == 1, f"call {crash.nth}, {crash.when}"
        assert crash.answers[-1] == 1, f"call {crash.nth}, {crash.when}: {crash.answers}"


def test_a_harness_without_an_engine_sees_the_duplicate() -> None:
    """What the harness is for: an operation that settles nothing repeats its effect, and that shows."""

    def careless(store: Store, ledger: Ledger) -> int:
        store.find(Query())
        return ledger.enter("42")

    assert [len(crash.ledger.entries) for crash in crash_everywhere(careless)] == [3, 3]
