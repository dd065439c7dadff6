"""Which event a change stands for."""

from __future__ import annotations

import pytest

from umavez.core import drafts
from umavez.core.drafts import Intent
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.record import Draft, Record, Settled, Status
from umavez.core.telling import events
from umavez.core.telling.events import MOST_SAID, EventDraft, read

KEY = Key("shop", "charge", "42")
POLICY = Policy("rerun", lease=10)
CLAIM = drafts.claiming(Intent(KEY), POLICY, "ab-1")


def record(status: Status, attempt: int = 1, error: str | None = None) -> Record:
    return Record(KEY, "ab-1/3", 7, status, attempt, 1, 2, 3, error=error)


def kind(draft: Draft) -> str | None:
    return None if draft.event is None else draft.event.kind


@pytest.mark.parametrize(
    ("draft", "told"),
    [
        (CLAIM, None),
        (drafts.renewing(CLAIM, "ab-1/1"), None),
        (drafts.settling(CLAIM, "ab-1/1", Settled(True, "1"), 5), None),
        (drafts.settling(CLAIM, "ab-1/1", Settled(False, "1"), 5, "no"), None),
        (drafts.settling(CLAIM._replace(attempt=2), "ab-1/1", Settled(True, "1"), 5), "succeeded"),
        (drafts.settling(CLAIM._replace(attempt=2), "ab-1/1", Settled(False, "1"), 5), "refused"),
        (drafts.settling(CLAIM, "ab-1/1", Settled(True, "1"), 5, None, "[]"), "adopted"),
        (drafts.checkpointing(CLAIM, "ab-1/1", "half"), "checkpoint"),
        (drafts.failing(CLAIM, "ab-1/1", "no", 5), "failed"),
        (drafts.failing(CLAIM, "ab-1/1", events.GIVEN_BACK, 5), None),
        (drafts.doubting(CLAIM, "ab-1/1", "no answer"), "unknown"),
        (drafts.rerunning(CLAIM, "ab-1/1", "[]"), "retried"),
        (drafts.abandoning(record(Status.PENDING), "cd-1"), "lease over"),
    ],
)
def test_the_clean_path_tells_nothing_and_all_else_one_thing(draft: Draft, told: str | None) -> None:
    assert kind(draft) == told


@pytest.mark.parametrize(
    ("standing", "fresh", "told"),
    [
        (record(Status.PENDING), False, "taken over"),
        (record(Status.UNKNOWN), False, "taken over"),
        (record(Status.FAILED, error="no"), False, "retried"),
        (record(Status.FAILED, 9, events.GIVEN_BACK), False, None),
        (record(Status.SUCCESS), True, "began anew"),
        (record(Status.FAILED, 0), True, "began anew"),
    ],
)
def test_a_claim_tells_what_it_replaced(standing: Record, fresh: bool, told: str | None) -> None:
    assert kind(drafts.following(Intent(KEY), POLICY, "cd-1", standing, 2, fresh=fresh)) == told


def test_an_event_is_told_once_however_often_the_claim_is_renewed() -> None:
    taken = drafts.following(Intent(KEY), POLICY, "cd-1", record(Status.PENDING), 2, fresh=False)

    assert kind(drafts.renewing(taken, "cd-1/1")) is None


def test_a_takeover_keeps_what_the_record_forgets() -> None:
    taken = events.claimed(record(Status.PENDING), fresh=False)
    assert taken is not None
    _, before = read(taken.detail)

    assert before == ("PENDING", 1, 7, "ab-1", 1, 2, 3)


def test_what_is_said_is_bounded_and_can_be_stored() -> None:
    decided = events.decided(record(Status.UNKNOWN), frees=True, by="ana\0", reason="é" * 5000)
    words, before = read(decided.detail)

    assert decided.kind == "released"
    assert len(words) == MOST_SAID
    assert "\0" not in words
    assert before is not None
    assert len(decided.detail or "") < 3 * MOST_SAID
    assert len(events.doubted("x" * 5000).detail or "") == MOST_SAID


def test_only_what_is_settled_is_overridden() -> None:
    settled = record(Status.SUCCESS)._replace(settled=Settled(True, "1"))

    assert events.decided(settled, frees=False, by="ana", reason="wrong").kind == "overridden"
    assert events.decided(record(Status.UNKNOWN), frees=False, by="ana", reason="asked").kind == "resolved"


@pytest.mark.parametrize("detail", [None, "plain", "{", '{"said": 1}', '{"said": null, "before": [1]}', "[]"])
def test_a_detail_that_another_program_wrote_is_its_words(detail: str | None) -> None:
    assert read(detail) == (detail or "", None)


def test_holders_and_their_processes_are_read_from_stamps() -> None:
    assert events.holder_of("ab-1f/12") == "ab-1f"
    assert events.prefix_of("ab-1f") == "ab"
    assert events.prefix_of("foreign") == "foreign"
    assert EventDraft("lost") == events.LOST
