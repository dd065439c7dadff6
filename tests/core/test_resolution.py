from __future__ import annotations

import json
from typing import Any

import pytest

from umavez.core.flow import Read, Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Record, Settled, Status
from umavez.core.resolution import AlreadySettled, NoSuchRecord, RecordChanged, Resolution, noted, resolve
from umavez.errors import OperationInProgress

KEY = Key("shop", "charge", "42")
NOW = 1_000_000
UNKNOWN = Record(KEY, "s", 5, Status.UNKNOWN, 3, 1, 1, fingerprint="1:aa", error="no answer", progress="half")
PAID = Resolution(Settled(True, '"paid"'), "ana", "seen at the bank")
FREE = Resolution(None, "ana", "the bank says no")


def written(resolution: Resolution, record: Record = UNKNOWN, **options: Any) -> Any:
    flow = resolve(KEY, resolution, 60_000, "human", **options)
    assert next(flow) == Read(KEY)
    swap = flow.send(Seen(record, NOW))
    assert isinstance(swap, Swap)
    assert swap.expected == record.stamp
    with pytest.raises(StopIteration) as end:
        flow.send(Swapped(5, NOW))
    assert end.value.value == (record, swap.draft)
    return swap.draft


def test_a_resolved_record_keeps_the_outcome_with_who_when_and_why() -> None:
    draft = written(PAID)

    assert (draft.status, draft.settled, draft.keep, draft.lease, draft.claims) == (
        Status.SUCCESS,
        Settled(True, '"paid"'),
        60_000,
        None,
        False,
    )
    assert json.loads(draft.evidence) == [{"at": NOW, "what": "resolved", "by": "ana", "reason": "seen at the bank"}]
    assert (draft.attempt, draft.progress, draft.fingerprint) == (3, "half", "1:aa")


def test_a_released_key_is_failed_with_its_attempts_set_back() -> None:
    draft = written(FREE)

    assert (draft.status, draft.settled, draft.attempt) == (Status.FAILED, None, 0)
    assert json.loads(draft.evidence)[0]["what"] == "released"


def test_evidence_is_added_to_what_is_there() -> None:
    first = noted(None, 1, "asked", "far side", "no answer")

    both = json.loads(noted(first, 2, "resolved", "João", "seen"))

    assert [entry["what"] for entry in both] == ["asked", "resolved"]
    assert both[1]["by"] == "João"


def test_nothing_there_is_said_so() -> None:
    flow = resolve(KEY, PAID, 60_000, "human")
    next(flow)

    with pytest.raises(NoSuchRecord):
        flow.send(Seen(None, NOW))


def test_a_live_claim_is_left_alone_and_a_lapsed_one_is_not() -> None:
    running = UNKNOWN._replace(status=Status.PENDING, lease_until=NOW + 5000)
    for decision, override in ((PAID, False), (FREE, False), (FREE, True)):
        flow = resolve(KEY, decision, 60_000, "human", override=override)
        next(flow)

        with pytest.raises(OperationInProgress) as refused:
            flow.send(Seen(running, NOW))

        assert refused.value.retry_after == 5.0
    assert written(PAID, running._replace(lease_until=NOW)).status is Status.SUCCESS


def test_a_live_claim_is_settled_over_its_head_by_override_only() -> None:
    """An operation that hangs, with a heartbeat that does not: somebody must be able to close it."""
    running = UNKNOWN._replace(status=Status.PENDING, lease_until=NOW + 5000)

    assert written(PAID, running, override=True).status is Status.SUCCESS


def test_an_outcome_changes_only_by_override() -> None:
    settled = UNKNOWN._replace(status=Status.SUCCESS, settled=Settled(True, "1"))
    flow = resolve(KEY, PAID, 60_000, "human")
    next(flow)

    with pytest.raises(AlreadySettled):
        flow.send(Seen(settled, NOW))

    assert written(PAID, settled, override=True).settled == PAID.settled


def test_who_loses_the_race_looks_again_and_gives_up_in_the_end() -> None:
    flow = resolve(KEY, PAID, 60_000, "human")
    command: Any = next(flow)
    rounds = 0

    with pytest.raises(OperationInProgress):
        while True:
            rounds += 1
            command = flow.send(Seen(UNKNOWN, NOW) if isinstance(command, Read) else Stale(UNKNOWN, NOW))

    assert rounds == 9, "one look, and what each of eight swaps shows"


def test_a_resolution_whose_answer_was_lost_is_recognised() -> None:
    flow = resolve(KEY, PAID, 60_000, "human")
    next(flow)
    flow.send(Seen(UNKNOWN, NOW))

    with pytest.raises(StopIteration) as end:
        flow.send(Stale(UNKNOWN._replace(stamp="human"), NOW))

    assert end.value.value[0] == UNKNOWN


def test_a_decision_names_the_stamp_that_was_seen() -> None:
    assert written(PAID, expected="s").status is Status.SUCCESS
    flow = resolve(KEY, PAID, 60_000, "human", expected="an older stamp")
    next(flow)

    with pytest.raises(RecordChanged) as changed:
        flow.send(Seen(UNKNOWN, NOW))

    assert changed.value.record == UNKNOWN


def test_a_record_that_changes_between_the_look_and_the_swap_is_not_decided_about() -> None:
    flow = resolve(KEY, PAID, 60_000, "human", expected="s")
    next(flow)
    flow.send(Seen(UNKNOWN, NOW))

    with pytest.raises(RecordChanged):
        flow.send(Stale(UNKNOWN._replace(stamp="t"), NOW))
