"""Laws of what is kept: every text comes back as it was given, and emptiness is not absence."""

from __future__ import annotations

from umavez.core.protocol import Busy, Intent, Mismatched, Replay
from umavez.core.record import Draft, Settled, Status
from umavez.errors import NotStorable
from umavez.testing.harness import AnyBench
from umavez.testing.laws.law import Law

TEXTS = (
    "",
    " ",
    "null",
    '"\\u0000"',
    '{"name":"João","mark":"🂡🚕","tail":"  "}',
    "trailing blanks   ",
    "line\r\nline\n\ttab",
    "quote ' and \\ backslash and % and :name and ?",
    "e\u0301 is not \u00e9",
    "\ufeff\u200b\u2028",
)


def a_settled_outcome_is_replayed_text_by_text(bench: AnyBench) -> None:
    """Law 3: empty text, escaped NUL, four-byte characters and trailing blanks included."""
    for number, text in enumerate(TEXTS):
        key = bench.key(f"k{number}")
        bench.drive(bench.claim(key).settle(Settled(True, text)))
        replay = bench.admit(key)
        assert isinstance(replay, Replay), f"{text!r} was settled and is not replayed"
        assert replay.record.settled == Settled(True, text)
        assert replay.record.status is Status.SUCCESS


def a_megabyte_is_replayed_whole(bench: AnyBench) -> None:
    """The largest body that a policy lets through by default, in characters of one to four bytes."""
    body = '"' + ("aé€🚕" * 100_000) + '"'
    bench.drive(bench.claim(bench.key()).settle(Settled(True, body)))
    replay = bench.admit(bench.key())
    assert isinstance(replay, Replay)
    assert replay.record.settled is not None
    assert replay.record.settled.body == body


def an_empty_outcome_is_not_an_absent_one(bench: AnyBench) -> None:
    """Settled with an empty text, or with none because it could not be kept, is settled: nobody runs it again."""
    for number, settled in enumerate(Settled(ok, body) for ok in (True, False) for body in ("", None)):
        key = bench.key(str(number))
        bench.drive(bench.claim(key).settle(settled))
        replay = bench.admit(key)
        assert isinstance(replay, Replay), f"the outcome {settled} was lost"
        assert replay.record.settled == settled, f"{settled} came back as {replay.record.settled}"


def an_outcome_written_in_company_is_as_whole_as_one_written_alone(bench: AnyBench) -> None:
    """Many settle at once, so that a store that sends swaps together does so; each keeps all it says."""
    bodies = ("", None, '"value"', '"' + "x" * 3000 + '"')
    wanted = [Settled(number % 3 > 0, bodies[number % 4]) for number in range(48)]
    claims = [bench.claim(bench.key(str(number))) for number in range(len(wanted))]
    bench.together(
        [
            claim.settle(settled, error=f"e{number}", evidence=f'["{number}"]')
            for number, (claim, settled) in enumerate(zip(claims, wanted, strict=True))
        ]
    )
    for number, settled in enumerate(wanted):
        record = bench.record(bench.key(str(number)))
        assert record.settled == settled, f"{settled} came back as {record.settled}"
        assert (record.error, record.evidence) == (f"e{number}", f'["{number}"]')


def a_refusal_is_replayed_and_a_failure_is_not(bench: AnyBench) -> None:
    """Both are FAILED; only the refusal has an outcome."""
    refused, failed = bench.key("refused"), bench.key("failed")
    bench.drive(bench.claim(refused).settle(Settled(False, '"no funds"')))
    bench.drive(bench.claim(failed).fail("timed out"))
    replay = bench.admit(refused)
    assert isinstance(replay, Replay)
    assert (replay.record.status, replay.record.settled) == (Status.FAILED, Settled(False, '"no funds"'))
    record = bench.record(failed)
    assert (record.status, record.settled, record.error) == (Status.FAILED, None, "timed out")
    assert bench.claim(failed).draft.attempt == 2


def a_mismatch_is_said_before_busy_and_before_replay(bench: AnyBench) -> None:
    """Law 4: another request under a used key learns nothing else, and changes nothing."""
    mine, other = Intent(bench.key(), "1:aa"), Intent(bench.key(), "1:bb")
    claim = bench.claim(mine)
    before = bench.record(bench.key())
    assert before.fingerprint == "1:aa"
    assert isinstance(bench.admit(other), Mismatched)
    assert isinstance(bench.admit(mine), Busy)
    assert bench.record(bench.key()) == before
    bench.drive(claim.settle(Settled(True, "1")))
    assert isinstance(bench.admit(other), Mismatched)
    assert isinstance(bench.admit(mine), Replay)


def a_mismatch_is_said_before_a_takeover(bench: AnyBench) -> None:
    """Another request does not run because the first one's lease is over or its attempt failed."""
    mine, other = Intent(bench.key(), "1:aa"), Intent(bench.key(), "1:bb")
    bench.claim(mine)
    bench.lapse()
    assert isinstance(bench.admit(other), Mismatched)
    bench.drive(bench.claim(mine).fail("no"))
    assert isinstance(bench.admit(other), Mismatched)


def every_part_of_a_record_comes_back(bench: AnyBench) -> None:
    """What is absent comes back absent, what is empty empty, and texts as they are."""
    for number, text in enumerate((None, "", *TEXTS[1:])):
        draft = _full(bench, f"k{number}", text)
        bench.swap(None, draft)
        record = bench.record(draft.key)
        given = (draft.status, draft.attempt, draft.fingerprint, draft.process_instance, draft.activity)
        assert (
            record.status,
            record.attempt,
            record.fingerprint,
            record.process_instance,
            record.activity,
        ) == given
        assert (record.error, record.progress, record.evidence, record.settled) == (text, text, text, None)
        assert record.lease_until is None
        assert record.expires_at is None
        assert record.key == draft.key


def every_part_of_a_record_can_be_replaced(bench: AnyBench) -> None:
    """A swap replaces the whole record: nothing of the old one shines through the new."""
    draft = _full(bench, "k", "old")._replace(lease=5000, keep=5000, settled=Settled(True, "old"))
    bench.swap(None, draft)
    bench.swap(draft.stamp, Draft(draft.key, "bare", Status.PENDING, False, 1))
    record = bench.record(draft.key)
    assert (record.lease_until, record.expires_at, record.settled, record.attempt) == (None, None, None, 1)
    assert (record.fingerprint, record.process_instance, record.activity) == (None, None, None)
    assert (record.error, record.progress, record.evidence) == (None, None, None)


def a_place_is_kept_whole_or_refused(bench: AnyBench) -> None:
    """A process instance or an activity that is too long for its column is not cut, nor are blanks at its end."""
    for number, text in enumerate(("p" * 255, "🚕" * 255, "p" * 255 + " ", "p" * 256)):
        draft = _full(bench, f"place{number}", "")._replace(process_instance=text, activity=text)
        try:
            bench.swap(None, draft)
        except NotStorable:
            assert len(text) > 255
            continue
        record = bench.record(draft.key)
        assert (record.process_instance, record.activity) == (text, text)


def _full(bench: AnyBench, value: str, text: str | None) -> Draft:
    return Draft(
        bench.key(value),
        f"stamp-{value}",
        Status.UNKNOWN,
        True,
        7,
        fingerprint=None if text is None else "1:" + "f" * 64,
        process_instance=None if text is None else "instance",
        activity=None if text is None else "activity",
        error=text,
        progress=text,
        evidence=text,
    )


LAWS: tuple[Law, ...] = (
    a_settled_outcome_is_replayed_text_by_text,
    a_megabyte_is_replayed_whole,
    an_empty_outcome_is_not_an_absent_one,
    an_outcome_written_in_company_is_as_whole_as_one_written_alone,
    a_refusal_is_replayed_and_a_failure_is_not,
    a_mismatch_is_said_before_busy_and_before_replay,
    a_mismatch_is_said_before_a_takeover,
    every_part_of_a_record_comes_back,
    every_part_of_a_record_can_be_replaced,
    a_place_is_kept_whole_or_refused,
)
