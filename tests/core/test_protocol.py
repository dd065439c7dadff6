"""The flows, stepped by hand: take a command, look at it, send what a store would answer. No store, no clock."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from umavez.core import protocol
from umavez.core.drafts import checkpointing, doubting, failing, renewing, rerunning, settling
from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.protocol import (
    ROUNDS,
    Asking,
    Busy,
    Claim,
    Doubtful,
    Exhausted,
    Granted,
    Intent,
    Mismatched,
    Replay,
    admit,
    change,
    judge,
)
from umavez.core.record import Draft, Record, Settled, Status
from umavez.errors import ClaimLost

KEY = Key("shop", "charge", "42")
INTENT = Intent(KEY, "1:aa", "instance", "activity")
RERUN = Policy("rerun", lease=10, keep=60, max_retries=2)
HOLD = Policy("hold", lease=10, keep=60, max_retries=2)
ASK = Policy(print, lease=10, keep=60, max_retries=2)
NOW = 1_000_000
RUNNING = Record(KEY, "rival", 5, Status.PENDING, 1, NOW - 100, NOW - 100, NOW + 4000, fingerprint="1:aa")
LAPSED = RUNNING._replace(lease_until=NOW, progress="half", evidence="[]")
SETTLED = RUNNING._replace(status=Status.SUCCESS, settled=Settled(True, "1"), lease_until=None, expires_at=NOW + 1)
FAILED = RUNNING._replace(status=Status.FAILED, lease_until=None, expires_at=NOW + 1, error="no", progress="half")
UNKNOWN = RUNNING._replace(status=Status.UNKNOWN, lease_until=None, error="no answer")


def stepped(flow: Any, *replies: Any) -> tuple[list[Swap], Any]:
    """The commands that `flow` gave, and what it returned, when it was sent `replies`."""
    commands = [next(flow)]
    for reply in replies:
        try:
            commands.append(flow.send(reply))
        except StopIteration as end:
            return commands, end.value
    raise AssertionError(f"the flow wants more: {commands[-1]}")


def told(record: Record, policy: Policy = RERUN, intent: Intent = INTENT) -> Any:
    return stepped(admit(intent, policy, "me"), Stale(record, NOW))[1]


def claim_of(draft: Draft | None = None) -> Claim:
    first = Draft(KEY, "me", Status.PENDING, True, 1, 10_000, None, "1:aa")
    return Claim(first if draft is None else draft, 6, NOW)


def test_a_new_key_costs_one_insert() -> None:
    (swap,), verdict = stepped(admit(INTENT, RERUN, "me"), Swapped(6, NOW))

    assert swap.expected is None
    assert swap.draft == Draft(KEY, "me", Status.PENDING, True, 1, 10_000, None, "1:aa", "instance", "activity")
    assert verdict == Granted(Claim(swap.draft, 6, NOW), None)


@pytest.mark.parametrize("policy", [RERUN, HOLD, ASK], ids=["rerun", "hold", "ask"])
def test_what_stands_in_the_way_costs_one_round_and_writes_nothing(policy: Policy) -> None:
    assert told(SETTLED, policy) == Replay(SETTLED)
    assert told(RUNNING, policy) == Busy(4000)
    assert told(FAILED._replace(attempt=3), policy) == Exhausted(FAILED._replace(attempt=3))


def test_a_refusal_is_replayed() -> None:
    refused = SETTLED._replace(status=Status.FAILED, settled=Settled(False, "{}"))

    assert told(refused) == Replay(refused)


@pytest.mark.parametrize("record", [SETTLED, RUNNING, LAPSED, FAILED, UNKNOWN])
def test_another_content_is_told_mismatched_before_anything_else(record: Record) -> None:
    assert told(record, RERUN, Intent(KEY, "1:bb")) == Mismatched()


def test_a_policy_may_replay_another_content() -> None:
    lenient = Policy("rerun", mismatch="replay")

    assert told(SETTLED, lenient, Intent(KEY, "1:bb")) == Replay(SETTLED)


def test_a_mismatch_ends_with_the_expiry() -> None:
    dead = SETTLED._replace(expires_at=NOW, evidence="old", progress="old")

    (_, swap), verdict = stepped(admit(Intent(KEY, "1:bb"), RERUN, "me"), Stale(dead, NOW), Swapped(7, NOW))

    assert swap.expected == "rival"
    assert (swap.draft.attempt, swap.draft.fresh, swap.draft.claims) == (1, True, True)
    assert (swap.draft.fingerprint, swap.draft.progress, swap.draft.evidence) == ("1:bb", None, None)
    assert verdict == Granted(Claim(swap.draft, 7, NOW), None)


def test_a_failure_is_retried_as_the_next_attempt_with_its_progress() -> None:
    (_, swap), verdict = stepped(admit(INTENT, RERUN, "me"), Stale(FAILED, NOW), Swapped(7, NOW))

    assert swap.expected == "rival"
    assert (swap.draft.attempt, swap.draft.progress, swap.draft.fresh) == (2, "half", False)
    assert verdict == Granted(Claim(swap.draft, 7, NOW), None)


@pytest.mark.parametrize("record", [LAPSED, UNKNOWN])
def test_rerun_takes_over_what_ended_without_an_answer(record: Record) -> None:
    (_, swap), verdict = stepped(admit(INTENT, RERUN, "me"), Stale(record, NOW), Swapped(7, NOW))

    assert (swap.draft.attempt, swap.draft.progress, swap.draft.claims) == (2, record.progress, True)
    assert verdict == Granted(Claim(swap.draft, 7, NOW), record)
    assert told(record._replace(attempt=3)) == Exhausted(record._replace(attempt=3))


@pytest.mark.parametrize("record", [LAPSED, UNKNOWN])
def test_ask_claims_the_question_without_counting_an_attempt(record: Record) -> None:
    (_, swap), verdict = stepped(admit(INTENT, ASK, "me"), Stale(record, NOW), Swapped(7, NOW))

    assert (swap.draft.attempt, swap.draft.status, swap.draft.claims) == (1, Status.PENDING, True)
    assert verdict == Asking(Claim(swap.draft, 7, NOW), record)


def test_hold_writes_unknown_once_and_then_only_says_so() -> None:
    (_, swap), verdict = stepped(admit(INTENT, HOLD, "me"), Stale(LAPSED, NOW), Swapped(5, NOW))

    assert (swap.draft.status, swap.draft.claims, swap.draft.lease, swap.draft.keep) == (
        Status.UNKNOWN,
        False,
        None,
        None,
    )
    assert (swap.draft.progress, swap.draft.error) == ("half", "The attempt ended without an answer.")
    assert verdict == Doubtful(LAPSED)
    assert told(UNKNOWN, HOLD) == Doubtful(UNKNOWN)


def test_who_loses_the_race_for_a_takeover_looks_again() -> None:
    taken = RUNNING._replace(stamp="third")

    swaps, verdict = stepped(admit(INTENT, RERUN, "me"), Stale(LAPSED, NOW), Stale(taken, NOW))

    assert [swap.expected for swap in swaps] == [None, "rival"]
    assert verdict == Busy(4000)


def test_a_record_that_vanished_is_inserted_anew() -> None:
    swaps, verdict = stepped(admit(INTENT, RERUN, "me"), Stale(FAILED, NOW), Stale(None, NOW), Swapped(9, NOW))

    assert [swap.expected for swap in swaps] == [None, "rival", None]
    assert swaps[2].draft.attempt == 1
    assert isinstance(verdict, Granted)


def test_admission_gives_up_after_a_bounded_number_of_rounds() -> None:
    swaps, verdict = stepped(admit(INTENT, RERUN, "me"), *[Stale(None, NOW)] * ROUNDS)

    assert len(swaps) == ROUNDS
    assert verdict == Busy(10_000)


def test_a_claim_won_in_the_last_round_is_granted() -> None:
    """Told Busy instead, its owner would leave a claim behind that nobody holds."""
    replies = [*[Stale(None, NOW)] * (ROUNDS - 1), Swapped(9, NOW)]

    _, verdict = stepped(admit(INTENT, RERUN, "me"), *replies)

    assert isinstance(verdict, Granted)


def test_an_insert_whose_answer_was_lost_is_recognised() -> None:
    mine = RUNNING._replace(stamp="me", fence=6, created_at=NOW, updated_at=NOW)

    (swap,), verdict = stepped(admit(INTENT, RERUN, "me"), Stale(mine, NOW))

    assert verdict == Granted(Claim(swap.draft, 6, NOW), None)


@pytest.mark.parametrize(("policy", "kind"), [(RERUN, Granted), (ASK, Asking), (HOLD, Doubtful)])
def test_a_takeover_whose_answer_was_lost_is_recognised_when_sent_again(policy: Policy, kind: type) -> None:
    flow = admit(INTENT, policy, "me")
    next(flow)
    swap = flow.send(Stale(LAPSED, NOW))
    mine = LAPSED._replace(stamp="me", status=swap.draft.status, attempt=swap.draft.attempt, updated_at=NOW)

    with pytest.raises(StopIteration) as end:
        flow.send(Stale(mine, NOW))

    assert isinstance(end.value.value, kind)


@pytest.mark.parametrize("policy", [RERUN, HOLD, ASK], ids=["rerun", "hold", "ask"])
def test_a_takeover_is_never_taken_for_a_first_claim_by_who_asks_anew_under_its_stamp(policy: Policy) -> None:
    """The answer to the takeover was lost; the caller begins again and meets its own stamp at the insert."""
    asking = LAPSED._replace(stamp="me", lease_until=NOW + 10_000, updated_at=NOW)
    rerunning = asking._replace(attempt=2)
    doubted = UNKNOWN._replace(stamp="me", updated_at=NOW)

    assert told(asking, policy) == Busy(10_000)
    assert told(rerunning, policy) == Busy(10_000)
    assert told(doubted, policy) == Doubtful(doubted)


def test_a_released_key_begins_a_new_life_and_keeps_the_evidence() -> None:
    released = FAILED._replace(attempt=0, evidence="[1]")

    (_, swap), _ = stepped(admit(INTENT, HOLD, "me"), Stale(released, NOW), Swapped(7, NOW))

    assert (swap.draft.attempt, swap.draft.fresh, swap.draft.evidence) == (1, True, "[1]")


def changing(drafting: Any, *words: Any, stamp: str = "me/1", claim: Claim | None = None) -> Any:
    """The flow by which an owner puts what `drafting` makes of its draft in that draft's place."""
    claim = claim or claim_of()
    return change(claim, drafting(claim.draft, stamp, *words))


CHANGES: dict[str, Any] = {
    "renew": lambda: changing(renewing),
    "checkpoint": lambda: changing(checkpointing, '"page 3"'),
    "rerun": lambda: changing(rerunning, "[]"),
    "settle": lambda: changing(settling, Settled(True, "1"), 60_000),
    "fail": lambda: changing(failing, "no", 60_000),
    "doubt": lambda: changing(doubting, "no answer"),
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_a_change_names_the_stamp_it_replaces_and_claims_no_fence(changed: Any) -> None:
    (swap,), claim = stepped(changed(), Swapped(6, NOW + 1))

    assert swap.expected == "me"
    assert (swap.draft.stamp, swap.draft.claims) == ("me/1", False)
    assert claim == Claim(swap.draft, 6, NOW + 1)


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("standing", [RUNNING, SETTLED, UNKNOWN, None], ids=["running", "settled", "unknown", "gone"])
def test_an_overtaken_owner_is_told_so_at_once(changed: Any, standing: Record | None) -> None:
    flow = changed()
    next(flow)

    with pytest.raises(ClaimLost) as lost:
        flow.send(Stale(standing, NOW))

    assert lost.value.key == KEY


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_a_change_whose_answer_was_lost_is_recognised(changed: Any) -> None:
    _, claim = stepped(changed(), Stale(RUNNING._replace(stamp="me/1"), NOW))

    assert claim.draft.stamp == "me/1"


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_an_own_earlier_write_is_replaced(changed: Any) -> None:
    """A heartbeat's answer was lost; what stands there is the owner's own."""
    earlier = Stale(RUNNING._replace(stamp="me/0"), NOW)

    swaps, claim = stepped(changed(), earlier, Swapped(6, NOW))
    again, recognised = stepped(changed(), earlier, Stale(RUNNING._replace(stamp="me/1"), NOW))

    assert [swap.expected for swap in swaps] == ["me", "me/0"] == [swap.expected for swap in again]
    assert claim.draft.stamp == recognised.draft.stamp == "me/1"


@pytest.mark.parametrize("other", ["me2/0", "m", "you/me", "me-1"])
def test_another_owner_with_a_similar_name_is_another_owner(other: str) -> None:
    flow = changing(renewing)
    next(flow)

    with pytest.raises(ClaimLost):
        flow.send(Stale(RUNNING._replace(stamp=other), NOW))


def test_an_own_settled_record_is_not_replaced() -> None:
    flow = changing(doubting, "no answer", stamp="me/2")
    next(flow)

    with pytest.raises(ClaimLost):
        flow.send(Stale(SETTLED._replace(stamp="me/1"), NOW))


def test_settling_keeps_the_outcome_ends_the_lease_and_starts_the_time_to_keep() -> None:
    claim = claim_of()._replace(draft=claim_of().draft._replace(evidence="[1]", error="earlier"))

    (swap,), _ = stepped(changing(settling, Settled(True, ""), 60_000, claim=claim), Swapped(6, NOW))

    draft = swap.draft
    assert (draft.status, draft.settled, draft.lease, draft.keep) == (
        Status.SUCCESS,
        Settled(True, ""),
        None,
        60_000,
    )
    assert (draft.error, draft.evidence) == (None, "[1]")


def test_doubting_ends_the_lease_and_never_expires() -> None:
    (swap,), _ = stepped(changing(doubting, "no answer", "[2]"), Swapped(6, NOW))

    draft = swap.draft
    assert (draft.status, draft.lease, draft.keep, draft.error, draft.evidence) == (
        Status.UNKNOWN,
        None,
        None,
        "no answer",
        "[2]",
    )


def test_rerunning_counts_an_attempt() -> None:
    (swap,), _ = stepped(changing(rerunning, "[3]"), Swapped(6, NOW))

    assert (swap.draft.attempt, swap.draft.evidence, swap.draft.lease) == (2, "[3]", 10_000)


@pytest.mark.parametrize("record", [SETTLED, RUNNING, LAPSED, FAILED, UNKNOWN], ids=lambda record: record.status)
@pytest.mark.parametrize("policy", [RERUN, HOLD, ASK], ids=["rerun", "hold", "ask"])
def test_a_record_is_judged_once(record: Record, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Record] = []
    monkeypatch.setattr(protocol, "judge", lambda *words: judged.append(words[0]) or judge(*words))
    flow = admit(INTENT, policy, "me")
    next(flow)

    with suppress(StopIteration):
        flow.send(Stale(record, NOW))

    assert judged == [record]


def test_a_judgement_is_a_function_of_the_store_s_time() -> None:
    assert judge(RUNNING, INTENT, RERUN, NOW + 3999) == Busy(1)
    assert not isinstance(judge(RUNNING, INTENT, RERUN, NOW + 4000), Busy)
