"""Laws of unknown outcomes: held for a human, asked about, rerun, resolved or released."""

from __future__ import annotations

import json

from umavez.core.protocol import Asking, Busy, Doubtful, Granted, Replay
from umavez.core.record import Settled, Status
from umavez.core.resolution import AlreadySettled, NoSuchRecord, RecordChanged, Resolution
from umavez.errors import OperationInProgress
from umavez.testing.harness import ASK, HOLD, RERUN, AnyBench
from umavez.testing.laws.law import Law, outcome_of


def a_held_operation_that_lapsed_is_unknown_for_everybody(bench: AnyBench) -> None:
    """With "hold" nobody runs again: the record becomes UNKNOWN, has no lease and never expires."""
    claim = bench.claim(bench.key(), HOLD)
    bench.lapse()
    verdicts = bench.together([bench.admission(bench.key(), HOLD) for _ in range(6)])
    assert len(outcome_of(verdicts, Doubtful)) == 6, "every caller is told that nobody knows"
    record = bench.record(bench.key())
    assert record.status is Status.UNKNOWN
    assert record.lease_until is None
    assert record.expires_at is None
    assert record.settled is None
    assert record.fence == claim.fence, "nobody claimed, so the fence stays"
    assert record.error


def a_doubted_attempt_is_unknown(bench: AnyBench) -> None:
    """`doubt` keeps error and evidence; "hold" waits, "ask" asks, "rerun" runs again."""
    bench.drive(bench.claim(bench.key(), HOLD).doubt("no answer", '["a proof"]'))
    record = bench.record(bench.key())
    assert (record.status, record.error, record.evidence) == (Status.UNKNOWN, "no answer", '["a proof"]')
    assert isinstance(bench.admit(bench.key(), HOLD), Doubtful)
    asking = bench.admit(bench.key(), ASK)
    assert isinstance(asking, Asking)
    assert asking.doubtful.evidence == '["a proof"]', "who asks is shown the evidence"


def of_rivals_for_a_doubtful_record_exactly_one_asks(bench: AnyBench) -> None:
    """The far side is asked by one caller at a time, under a claim of its own."""
    first = bench.claim(bench.key(), ASK)
    bench.lapse()
    verdicts = bench.together([bench.admission(bench.key(), ASK) for _ in range(6)])
    asking = outcome_of(verdicts, Asking)
    assert len(asking) == 1, f"{len(asking)} callers ask at once"
    assert len(outcome_of(verdicts, Busy)) == 5, "the others wait"
    assert asking[0].claim.fence > first.fence, "who asks has overtaken the attempt in doubt"
    assert asking[0].doubtful.fence == first.fence, "and is shown that attempt"


def a_claim_to_ask_becomes_a_claim_to_run(bench: AnyBench) -> None:
    """The far side never did it: same owner, same fence, one more attempt, the evidence kept."""
    bench.claim(bench.key(), ASK)
    bench.lapse()
    asking = bench.admit(bench.key(), ASK)
    assert isinstance(asking, Asking)
    running = bench.drive(bench.holder(asking.claim, ASK).rerun('["never arrived"]'))
    record = bench.record(bench.key())
    assert running.fence == asking.claim.fence == record.fence
    assert (record.attempt, record.evidence) == (2, '["never arrived"]')
    bench.drive(running.settle(Settled(True, "1")))
    settled = bench.record(bench.key())
    assert settled.evidence == '["never arrived"]', "the evidence outlives the attempt"


def an_adopted_outcome_keeps_its_evidence(bench: AnyBench) -> None:
    """The far side has it: what it said is settled, with the proof beside it."""
    bench.claim(bench.key(), ASK)
    bench.lapse()
    asking = bench.admit(bench.key(), ASK)
    assert isinstance(asking, Asking)
    bench.drive(bench.holder(asking.claim, ASK).settle(Settled(True, "1"), evidence='["receipt 7"]'))
    replay = bench.admit(bench.key(), ASK)
    assert isinstance(replay, Replay)
    assert (replay.record.settled, replay.record.evidence) == (Settled(True, "1"), '["receipt 7"]')


def whoever_takes_over_inherits_the_progress(bench: AnyBench) -> None:
    """A rerun goes on where the checkpoint says, as the next attempt, and is told whom it took over."""
    late = bench.drive(bench.claim(bench.key()).checkpoint('{"page":3}'))
    bench.lapse()
    verdict = bench.admit(bench.key())
    assert isinstance(verdict, Granted)
    assert verdict.taken_over is not None
    assert verdict.taken_over.stamp == late.draft.stamp
    assert verdict.claim.draft.progress == '{"page":3}'
    record = bench.record(bench.key())
    assert (record.progress, record.attempt) == ('{"page":3}', 2)


def an_unknown_record_is_resolved_with_evidence(bench: AnyBench) -> None:
    """A human's word becomes the outcome; who, when and why stand in the evidence."""
    bench.drive(bench.claim(bench.key(), HOLD).doubt("no answer"))
    decision = Resolution(Settled(True, '"paid"'), "ana", "seen at the bank")
    was = bench.resolve(bench.key(), decision, HOLD)
    assert was.status is Status.UNKNOWN
    replay = bench.admit(bench.key(), HOLD)
    assert isinstance(replay, Replay)
    assert replay.record.settled == Settled(True, '"paid"')
    entry = json.loads(replay.record.evidence or "[]")[-1]
    assert (entry["what"], entry["by"], entry["reason"]) == ("resolved", "ana", "seen at the bank")
    assert replay.record.expires_at is not None, "a resolved record is kept for a time, like any outcome"


def a_released_key_runs_again_from_the_first_attempt(bench: AnyBench) -> None:
    """Releasing frees the key, also after the retries were used up; the evidence stays."""
    claim = bench.claim(bench.key(), HOLD)
    bench.lapse()
    bench.admit(bench.key(), HOLD)
    release = Resolution(None, "ana", "the bank says no")
    bench.resolve(bench.key(), release, HOLD)
    assert bench.record(bench.key()).attempt == 0
    again = bench.claim(bench.key(), HOLD)
    assert again.draft.attempt == 1
    assert again.fence > claim.fence
    assert json.loads(bench.record(bench.key()).evidence or "[]")[0]["what"] == "released"


def a_resolution_disturbs_neither_the_living_nor_the_settled(bench: AnyBench) -> None:
    """A live lease, a settled outcome and an absent record each refuse, and nothing changes."""
    decision = Resolution(Settled(True, "1"), "ana", "a guess")
    _expect(NoSuchRecord, bench, decision)
    claim = bench.claim(bench.key())
    _expect(OperationInProgress, bench, decision)
    bench.drive(claim.settle(Settled(True, "2")))
    _expect(AlreadySettled, bench, decision)
    bench.resolve(bench.key(), decision, RERUN, override=True)
    assert bench.record(bench.key()).settled == Settled(True, "1"), "an override is explicit and works"


def a_decision_about_one_attempt_does_not_close_the_next(bench: AnyBench) -> None:
    """Who decides names the stamp that was seen: where another stands, however alike, nothing changes."""
    bench.drive(bench.claim(bench.key(), HOLD).doubt("no answer"))
    seen = bench.record(bench.key())
    bench.resolve(bench.key(), Resolution(None, "ana", "the bank says no"), HOLD, expected=seen.stamp)
    bench.drive(bench.claim(bench.key(), HOLD).doubt("no answer"))
    before = bench.record(bench.key())
    assert (before.status, before.attempt) == (seen.status, seen.attempt), "they look alike"
    for decision in (Resolution(Settled(True, "1"), "rui", "an old page"), Resolution(None, "rui", "an old page")):
        shown = None
        try:
            bench.resolve(bench.key(), decision, HOLD, expected=seen.stamp)
        except RecordChanged as changed:
            shown = changed.record
        assert shown == before, "a decision about attempt 1 must not close attempt 2, and the refusal shows what stands"
        assert bench.record(bench.key()) == before
    bench.resolve(bench.key(), Resolution(Settled(True, "2"), "rui", "looked again"), HOLD, expected=before.stamp)
    assert bench.record(bench.key()).settled == Settled(True, "2")


def _expect(error: type[Exception], bench: AnyBench, decision: Resolution) -> None:
    before = bench.read(bench.key()).current
    try:
        bench.resolve(bench.key(), decision, RERUN)
    except error:
        assert bench.read(bench.key()).current == before, "a refused resolution changed the record"
    else:
        raise AssertionError(f"the resolution was not refused with {error.__name__}")


LAWS: tuple[Law, ...] = (
    a_held_operation_that_lapsed_is_unknown_for_everybody,
    a_doubted_attempt_is_unknown,
    of_rivals_for_a_doubtful_record_exactly_one_asks,
    a_claim_to_ask_becomes_a_claim_to_run,
    an_adopted_outcome_keeps_its_evidence,
    whoever_takes_over_inherits_the_progress,
    an_unknown_record_is_resolved_with_evidence,
    a_released_key_runs_again_from_the_first_attempt,
    a_resolution_disturbs_neither_the_living_nor_the_settled,
    a_decision_about_one_attempt_does_not_close_the_next,
)
