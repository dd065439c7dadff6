"""Drafts are made without their constructor, so their order is held here, field by field."""

from __future__ import annotations

from umavez.core.drafts import Intent, claiming, drafted, following, settling
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.record import Draft, Record, Settled, Status
from umavez.core.resolution import noted
from umavez.core.telling.events import EventDraft
from umavez.core.telling.history import moments

KEY = Key("shop", "charge", "42")
CLAIM = Draft(
    key=KEY,
    stamp="me",
    status=Status.PENDING,
    claims=True,
    attempt=3,
    lease=10_000,
    keep=None,
    fingerprint="1:aa",
    process_instance="instance",
    activity="activity",
    settled=None,
    error=None,
    progress=None,
    evidence=None,
    fresh=False,
)


def test_a_claim_says_each_thing_in_its_field() -> None:
    intent = Intent(KEY, "1:aa", "instance", "activity")

    assert claiming(intent, Policy("rerun", lease=10), "me", 3) == CLAIM


def test_a_settled_draft_says_each_thing_in_its_field() -> None:
    was = CLAIM._replace(progress="half", error="earlier")

    assert settling(was, "me/1", Settled(True, "1"), 5, "reason", "[1]") == was._replace(
        stamp="me/1",
        status=Status.SUCCESS,
        claims=False,
        lease=None,
        keep=5,
        settled=Settled(True, "1"),
        error="reason",
        evidence="[1]",
        event=EventDraft("adopted"),
    )


def test_a_draft_of_a_record_says_what_the_record_says() -> None:
    record = Record(
        key=KEY,
        stamp="old",
        fence=9,
        status=Status.UNKNOWN,
        attempt=4,
        created_at=1,
        updated_at=2,
        lease_until=3,
        expires_at=4,
        fingerprint="1:aa",
        process_instance="instance",
        activity="activity",
        settled=Settled(False, "2"),
        error="error",
        progress="progress",
        evidence="evidence",
    )

    draft = drafted(record, "new")

    alike = set(Draft._fields) & set(Record._fields) - {"stamp"}
    assert {name: getattr(draft, name) for name in alike} == {name: getattr(record, name) for name in alike}
    assert (draft.stamp, draft.claims, draft.lease, draft.keep, draft.fresh) == ("new", False, None, None, False)


def test_the_claim_of_an_operation_with_four_eyes_says_so_and_its_history_does_not() -> None:
    policy = Policy("hold", four_eyes=True)
    claim = claiming(Intent(KEY), policy, "me")
    record = Record(KEY, "me/1", 9, Status.SUCCESS, 1, 10, 20, settled=Settled(True, "1"), evidence=claim.evidence)

    assert record.takes_two
    assert not record._replace(evidence=None).takes_two
    assert record._replace(evidence=noted(claim.evidence, 30, "released", "ana", '"takes two"')).takes_two
    strange = noted(None, 30, "released", "ana", '[{"at": null, "what": "takes two"')
    assert not record._replace(evidence=strange).takes_two
    assert following(Intent(KEY), policy, "you", record, 1, fresh=True).evidence == claim.evidence
    assert following(Intent(KEY), policy, "you", record, 2, fresh=False).evidence == claim.evidence
    assert [(moment.what, moment.who) for moment in moments(record, 40)] == [("began", "me"), ("settled", "me")]
