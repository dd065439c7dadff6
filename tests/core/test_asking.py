"""What follows the far side's answer, for whoever asked."""

from __future__ import annotations

from umavez.core.asking import Adopt, Exhaust, GiveUp, Rerun, consequence
from umavez.core.key import Key
from umavez.core.policy import CannotTell, Happened, NotHappened, Policy
from umavez.core.record import Record, Status

POLICY = Policy(print, max_retries=1)
DOUBTFUL = Record(Key("shop", "charge", "42"), "dead", 3, Status.UNKNOWN, 1, 0, 0)


def test_what_happened_is_adopted_whatever_the_retries() -> None:
    for attempt in (1, 2, 3):
        assert consequence(Happened(7), DOUBTFUL._replace(attempt=attempt), POLICY) == Adopt(7, "the far side has it")


def test_what_nobody_can_tell_stays_unknown_with_the_reason() -> None:
    assert consequence(CannotTell("timed out"), DOUBTFUL, POLICY) == GiveUp("timed out")
    assert consequence(CannotTell(), DOUBTFUL, POLICY) == GiveUp("the far side could not tell")


def test_what_did_not_happen_runs_again_while_retries_are_left() -> None:
    assert isinstance(consequence(NotHappened(), DOUBTFUL, POLICY), Rerun)
    assert isinstance(consequence(NotHappened(), DOUBTFUL._replace(attempt=2), POLICY), Exhaust)
