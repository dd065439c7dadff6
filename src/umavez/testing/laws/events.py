"""Laws of events, for stores that keep them: written with their swap or not at all, bounded, gone with their record."""

from __future__ import annotations

from umavez.core.flow import Stale
from umavez.core.record import Draft, Settled
from umavez.core.resolution import Resolution
from umavez.core.telling.events import LOST, MOST_EVENTS, MOST_REMARKS, EventDraft, PastEvent, holder_of, read
from umavez.testing.harness import HOLD, AnyBench
from umavez.testing.laws.law import Law


def the_clean_path_leaves_no_event(bench: AnyBench) -> None:
    """What was claimed once and settled at attempt 1 is told by its record."""
    if not bench.keeps_events:
        return
    bench.drive(bench.claim(bench.key()).renew())
    assert bench.history(bench.key()) == []
    holder = bench.claim(bench.key("clean"))
    bench.drive(holder.renew())
    bench.drive(holder.settle(Settled(True, "1")))
    assert bench.history(bench.key("clean")) == []


def an_event_is_kept_with_the_swap_it_belongs_to(bench: AnyBench) -> None:
    """At its time, with its attempt and fence, and by whom."""
    if not bench.keeps_events:
        return
    key = bench.key()
    first = bench.drive(bench.claim(key).checkpoint("half"))
    bench.clock.advance(1)
    bench.drive(first.fail("no"))
    second = bench.claim(key)
    failed, retried = bench.history(key)[1:]
    record = bench.record(key)
    assert failed == PastEvent(failed.at, "failed", 1, first.fence, holder_of(first.draft.stamp), "no")
    assert retried[:5] == (record.updated_at, "retried", 2, second.fence, record.stamp)
    assert [past.kind for past in bench.history(key)] == ["checkpoint", "failed", "retried"]
    assert retried.at >= failed.at >= bench.history(key)[0].at + 1000


def whoever_takes_over_tells_whose_lease_was_over(bench: AnyBench) -> None:
    """The record forgets its last holder; the event must not."""
    if not bench.keeps_events:
        return
    key = bench.key()
    gone = bench.claim(key)
    before = bench.record(key)
    bench.lapse()
    taker = bench.claim(key)
    bench.drive(taker.settle(Settled(True, "2")))
    taken, settled = bench.history(key)
    assert (taken.kind, taken.fence, taken.attempt) == ("taken over", taker.fence, 2)
    _, told = read(taken.detail)
    assert told is not None
    assert (told.holder, told.fence, told.lease_until) == (gone.draft.stamp, gone.fence, before.lease_until)
    assert (settled.kind, settled.attempt) == ("succeeded", 2)


def a_decision_is_an_event(bench: AnyBench) -> None:
    """With who took it and why, and never with the outcome."""
    if not bench.keeps_events:
        return
    key = bench.key()
    bench.drive(bench.claim(key, HOLD).doubt("timeout"))
    bench.resolve(key, Resolution(Settled(True, '"secret"'), "ana", "the bank has it"), HOLD)
    unknown, resolved = bench.history(key)
    assert (unknown.kind, unknown.detail) == ("unknown", "timeout")
    assert (resolved.kind, read(resolved.detail)[0]) == ("resolved", "ana: the bank has it")
    assert "secret" not in str(bench.history(key))


def a_swap_that_was_refused_leaves_no_event(bench: AnyBench) -> None:
    """Nor does one that is sent twice leave two."""
    if not bench.keeps_events:
        return
    key = bench.key()
    holder = bench.claim(key)
    draft = _telling(holder.draft, f"{holder.draft.stamp}/1")
    assert isinstance(bench.swap("another", draft), Stale)
    assert bench.history(key) == []
    bench.swap(holder.draft.stamp, draft)
    assert isinstance(bench.swap(holder.draft.stamp, draft), Stale)
    assert [past.kind for past in bench.history(key)] == ["checkpoint"]


def events_of_many_at_once_go_to_their_own_keys(bench: AnyBench) -> None:
    """Swaps that share a statement or a transaction do not share their events."""
    if not bench.keeps_events:
        return
    names = [f"many-{number}" for number in range(24)]
    holders = [bench.claim(bench.key(name)) for name in names]
    jobs = [
        holder.fail(name) if number % 3 else holder.renew()
        for number, (name, holder) in enumerate(zip(names, holders, strict=True))
    ]
    bench.together(jobs)
    for number, (name, holder) in enumerate(zip(names, holders, strict=True)):
        told = [(past.kind, past.detail, past.fence) for past in bench.history(bench.key(name))]
        assert told == ([("failed", name, holder.fence)] if number % 3 else [])


def events_go_with_their_record(bench: AnyBench) -> None:
    """What is swept is gone, and the next life begins with nothing."""
    if not bench.keeps_events:
        return
    kept, swept = bench.key("kept"), bench.key("swept")
    bench.drive(bench.claim(kept, HOLD).doubt("timeout"))
    bench.drive(bench.claim(swept).fail("no"))
    assert len(bench.history(swept)) == 1
    bench.expire()
    while bench.sweep(1000):
        pass
    assert bench.history(swept) == []
    assert len(bench.history(kept)) == 1
    bench.claim(swept)
    assert bench.history(swept) == []


def the_latest_events_of_a_key_are_kept(bench: AnyBench) -> None:
    """A lease that is taken over for years must not fill the store."""
    if not bench.keeps_events:
        return
    key = bench.key()
    claim = bench.claim(key).draft
    stamp = claim.stamp
    for number in range(MOST_EVENTS + 3):
        draft = _telling(claim, f"{claim.stamp}/{number}", str(number))
        bench.swap(stamp, draft)
        stamp = draft.stamp
    kept = bench.history(key)
    assert [past.detail for past in kept] == [str(number) for number in range(3, MOST_EVENTS + 3)]


def a_few_remarks_are_kept_where_a_record_stands(bench: AnyBench) -> None:
    """A stranger who repeats a key with other contents must not fill the store, nor make events of nothing."""
    if not bench.keeps_events:
        return
    bench.remark(bench.key("nothing"), LOST)
    assert bench.history(bench.key("nothing")) == []
    key = bench.key()
    bench.claim(key)
    for _ in range(MOST_REMARKS + 2):
        bench.remark(key, LOST)
    assert [past[1:5] for past in bench.history(key)] == [("lost", 7, 8, "late")] * MOST_REMARKS


def _telling(draft: Draft, stamp: str, detail: str | None = None) -> Draft:
    return draft._replace(claims=False, stamp=stamp, event=EventDraft("checkpoint", detail))


LAWS: tuple[Law, ...] = (
    the_clean_path_leaves_no_event,
    an_event_is_kept_with_the_swap_it_belongs_to,
    whoever_takes_over_tells_whose_lease_was_over,
    a_decision_is_an_event,
    a_swap_that_was_refused_leaves_no_event,
    events_of_many_at_once_go_to_their_own_keys,
    events_go_with_their_record,
    the_latest_events_of_a_key_are_kept,
    a_few_remarks_are_kept_where_a_record_stands,
)
