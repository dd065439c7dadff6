"""The story of one key, as an operator reads it."""

from __future__ import annotations

import json

from umavez.core import drafts
from umavez.core.drafts import Intent
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.record import Record, Settled, Status
from umavez.core.resolution import noted
from umavez.core.telling import events
from umavez.core.telling.events import PastEvent, Process
from umavez.core.telling.history import Moment, moments, steps

KEY = Key("shop", "charge", "42")
POLICY = Policy("rerun", lease=30)
NAMES = {
    "ab": Process("ab", "web-3", 412, "serve", "1", seen_at=2_000),
    "cd": Process("cd", "web-1", 97, "serve", "1", seen_at=40_000),
}
CLAIMED = Record(KEY, "ab-1/2", 8812, Status.PENDING, 1, 1_000, 2_000, lease_until=31_000)


def words(told: list[Moment]) -> list[tuple[int, str, str]]:
    return [(moment.at, moment.what, moment.who) for moment in told]


def test_a_crash_a_takeover_a_question_and_a_late_writer_are_told_in_order() -> None:
    taken = drafts.following(Intent(KEY), POLICY, "cd-4", CLAIMED, 1, fresh=False).event
    assert taken is not None
    evidence = noted(noted(None, 41_000, "cannot tell", "far side", "503"), 70_000, "adopted", "far side", "id 99812")
    past = [
        PastEvent(1_500, "checkpoint", 1, 8812, "ab-1"),
        PastEvent(41_000, "taken over", 1, 8830, "cd-4", taken.detail),
        PastEvent(41_450, "unknown", 1, 8830, "cd-4", "CannotTell: 503"),
        PastEvent(70_000, "taken over", 1, 8835, "ef-9"),
        PastEvent(70_802, "adopted", 1, 8835, "ef-9", None, "4b"),
        PastEvent(99_000, "lost", 1, 8812, "ab-1"),
    ]
    settled = Settled(True, "1")
    record = Record(KEY, "ef-9/1", 8835, Status.SUCCESS, 1, 1_000, 70_802, settled=settled, evidence=evidence)

    told = moments(record, 200_000, past, NAMES)

    assert words(told) == [
        (1_000, "began", "web-3/412"),
        (1_500, "checkpoint", "web-3/412"),
        (31_000, "lease over", "web-3/412"),
        (41_000, "taken over", "web-1/97"),
        (41_450, "outcome unknown", "web-1/97"),
        (70_000, "taken over", "ef-9"),
        (70_802, "adopted", "ef-9"),
        (99_000, "came too late and was stopped", "web-3/412"),
    ]
    assert told[2].seen == 2_000
    assert (told[4].detail, told[6].detail, told[6].trace) == ("CannotTell: 503", "id 99812", "4b")
    assert [step.held for step in steps(told)] == [True, True, False, True, False, True, False, False]


def test_a_record_without_events_tells_what_it_can() -> None:
    assert words(moments(CLAIMED, 40_000, (), NAMES)) == [
        (1_000, "began", "web-3/412"),
        (2_000, "claimed or renewed", "web-3/412"),
        (31_000, "lease over", "web-3/412"),
    ]
    assert [moment.what for moment in moments(CLAIMED, 3_000)] == ["began", "claimed or renewed"]


def test_what_changed_nothing_hides_nothing() -> None:
    settled = CLAIMED._replace(status=Status.SUCCESS, lease_until=None, settled=Settled(True, "1"))

    assert words(moments(settled, 9_000, [PastEvent(5_000, "mismatched", 0, 0, "cd-2")], NAMES)) == [
        (1_000, "began", "web-3/412"),
        (2_000, "settled", "web-3/412"),
        (5_000, "key sent with another request", "web-1/97"),
    ]


def test_a_clean_end_that_was_overridden_is_still_told() -> None:
    was = Record(KEY, "ab-1/1", 7, Status.SUCCESS, 1, 1_000, 2_000, settled=Settled(True, "1"))
    event = events.decided(was, frees=True, by="ana", reason="wrong")
    evidence = noted(None, 5_000, "released", "ana", "wrong")
    now = Record(KEY, "cd-1", 7, Status.FAILED, 0, 1_000, 5_001, evidence=evidence)
    kept = PastEvent(5_001, event.kind, 0, 7, "cd-1", event.detail)

    assert words(moments(now, 9_000, [kept], NAMES)) == [
        (1_000, "began", "web-3/412"),
        (2_000, "settled", "web-3/412"),
        (5_001, "released", "ana"),
    ]


def test_an_earlier_life_is_told_before_this_one() -> None:
    was = Record(KEY, "ab-1/1", 7, Status.SUCCESS, 1, 1_000, 2_000, settled=Settled(True, "1"))
    anew = events.claimed(was, fresh=True)
    assert anew is not None
    record = Record(KEY, "cd-1/1", 8, Status.SUCCESS, 1, 9_000, 9_500, settled=Settled(True, "2"))

    told = moments(record, 10_000, [PastEvent(9_000, anew.kind, 1, 8, "cd-1", anew.detail)], NAMES)

    assert [(moment.at, moment.what) for moment in told] == [
        (1_000, "began"),
        (2_000, "settled"),
        (9_000, "began anew"),
        (9_500, "settled"),
    ]


def test_evidence_that_no_event_tells_is_told_itself() -> None:
    entry = {"at": None, "what": "issued", "by": "umavez", "reason": ""}
    record = Record(KEY, "ab-1", 7, Status.FAILED, 0, 1_000, 1_000, evidence=json.dumps([entry, "moved by hand"]))

    assert [(moment.what, moment.detail) for moment in moments(record, 2_000)][1:3] == [
        ("noted", "moved by hand"),
        ("issued", ""),
    ]
