"""Laws of the swap itself: atomic, recognised when repeated, honest about what stands there."""

from __future__ import annotations

from umavez.core.flow import Stale, Swapped
from umavez.core.key import Key
from umavez.core.protocol import Replay
from umavez.core.record import Draft, Settled, Status
from umavez.testing.harness import RERUN, AnyBench
from umavez.testing.laws.law import Law, outcome_of


def nothing_is_read_where_nothing_was_written(bench: AnyBench) -> None:
    """An absent record is None, with the store's time all the same."""
    seen = bench.read(bench.key())
    assert seen.current is None
    assert seen.now > 0


def an_insert_where_something_stands_shows_it_and_writes_nothing(bench: AnyBench) -> None:
    """A replay must cost one round trip and no write."""
    bench.swap(None, _draft(bench.key(), "a"))
    before = bench.record(bench.key())
    reply = bench.swap(None, _draft(bench.key(), "b"))
    assert isinstance(reply, Stale)
    assert reply.current == before
    assert bench.record(bench.key()) == before


def a_swap_that_names_the_wrong_stamp_writes_nothing(bench: AnyBench) -> None:
    """Every write proves ownership by naming the stamp that it replaces, exactly."""
    bench.swap(None, _draft(bench.key(), "a"))
    before = bench.record(bench.key())
    for wrong in ("b", "A", "a ", "a/1", ""):
        reply = bench.swap(wrong, _draft(bench.key(), "c"))
        assert isinstance(reply, Stale), f"the stamp {wrong!r} was taken for 'a'"
        assert reply.current == before
        assert bench.record(bench.key()) == before


def a_swap_of_a_record_that_vanished_says_so(bench: AnyBench) -> None:
    """Law 12: Stale(None), and nothing is written where nothing stands."""
    reply = bench.swap("gone", _draft(bench.key(), "a"))
    assert isinstance(reply, Stale)
    assert reply.current is None
    assert bench.read(bench.key()).current is None


def a_swap_sent_twice_is_done_once_and_recognised(bench: AnyBench) -> None:
    """Law 6, for an insert, a change and a takeover."""
    previous: str | None = None
    for stamp, claims in (("a", True), ("a/1", False), ("b", True)):
        first = bench.swap(previous, _draft(bench.key(), stamp, claims=claims))
        assert isinstance(first, Swapped)
        written = bench.record(bench.key())
        again = bench.swap(previous, _draft(bench.key(), stamp, claims=claims))
        assert isinstance(again, Stale), "the same swap was done twice"
        assert again.current is not None
        assert again.current.stamp == stamp, "a repeated swap is recognised by its stamp"
        assert bench.record(bench.key()) == written, "the repetition changed the record"
        previous = stamp


def a_swap_that_was_done_is_answered_as_done(bench: AnyBench) -> None:
    """The reply and the record agree, on the fence and on the time; for a claim, a takeover and an outcome."""
    outcome = _draft(bench.key(), "c", claims=False)._replace(status=Status.SUCCESS, settled=Settled(True, "1"))
    drafts = (_draft(bench.key(), "a"), _draft(bench.key(), "b"), outcome)
    for expected, draft in zip((None, "a", "b"), drafts, strict=True):
        stamp = draft.stamp
        reply = bench.swap(expected, draft)
        assert isinstance(reply, Swapped), "a change that was done was answered as lost"
        record = bench.record(bench.key())
        assert (record.stamp, record.fence, record.updated_at) == (stamp, reply.fence, reply.now)


def a_swap_that_lost_is_answered_as_lost(bench: AnyBench) -> None:
    """Of two changes to one record the second is told Stale, though neither knew of the other."""
    bench.swap(None, _draft(bench.key(), "a"))
    assert isinstance(bench.swap("a", _draft(bench.key(), "b")), Swapped)
    lost = bench.swap("a", _draft(bench.key(), "c"))
    assert isinstance(lost, Stale), "a lost swap was answered as done"
    assert lost.current is not None
    assert lost.current.stamp == "b"


def of_rival_changes_to_one_record_exactly_one_is_done(bench: AnyBench) -> None:
    """Compare and swap is one step, whoever comes at the same time."""
    keys = [bench.key(f"k{number}") for number in range(4)]
    for key in keys:
        bench.swap(None, _draft(key, "a"))
    replies = bench.together([bench.swapping("a", _draft(key, f"b{rival}")) for key in keys for rival in range(6)])
    for number in range(4):
        told = replies[number * 6 : number * 6 + 6]
        done = [rival for rival, reply in enumerate(told) if isinstance(reply, Swapped)]
        assert len(done) == 1, f"{len(done)} of 6 rivals changed one record"
        stamps = {reply.current.stamp for reply in told if isinstance(reply, Stale) and reply.current}
        assert stamps == {f"b{done[0]}"}, "the losers are shown the winner's record"
        assert len(outcome_of(told, Stale)) == 5


def callers_at_once_each_get_their_own_answer(bench: AnyBench) -> None:
    """A store that sends swaps together hands every caller the reply to its own, whichever way it went."""
    taken = [bench.key(f"taken-{number}") for number in range(10)]
    for key in taken:
        bench.swap(None, _draft(key, f"first-{key.value}"))
    free = [bench.key(f"free-{number}") for number in range(30)]
    replies = bench.together([bench.swapping(None, _draft(key, f"s-{key.value}")) for key in [*taken, *free]])
    for key, reply in zip(taken, replies[:10], strict=True):
        assert isinstance(reply, Stale)
        assert reply.current is not None
        assert (reply.current.key, reply.current.stamp) == (key, f"first-{key.value}")
    for key, reply in zip(free, replies[10:], strict=True):
        assert isinstance(reply, Swapped)
        record = bench.record(key)
        assert (record.stamp, record.fence) == (f"s-{key.value}", reply.fence)
    assert len({reply.fence for reply in outcome_of(replies, Swapped)}) == 30, "two claims share a fence"


def whole_operations_at_once_keep_apart(bench: AnyBench) -> None:
    """Claim, checkpoint and settle of many keys at once: each ends with its own outcome."""
    keys = [bench.key(f"k{number}") for number in range(24)]
    bench.together([_operation(bench, key) for key in keys])
    for key in keys:
        record = bench.record(key)
        assert (record.settled, record.progress) == (Settled(True, f'"{key.value}"'), f"at {key.value}")


def an_owner_recognises_its_own_earlier_write(bench: AnyBench) -> None:
    """When the answer to a renewal was lost, the owner's next change goes through all the same."""
    holder = bench.claim(bench.key())
    bench.drive(holder.renew())
    holder.lose_answer()
    bench.drive(holder.checkpoint('"half"'))
    holder.lose_answer()
    bench.drive(holder.settle(Settled(True, "1")))
    replay = bench.admit(bench.key())
    assert isinstance(replay, Replay)
    assert replay.record.settled == Settled(True, "1")


async def _operation(bench: AnyBench, key: Key) -> None:
    holder = await bench.claiming(key)
    await holder.checkpoint(f"at {key.value}")
    await holder.settle(Settled(True, f'"{key.value}"'))


def _draft(key: Key, stamp: str, *, claims: bool = True) -> Draft:
    return Draft(key, stamp, Status.PENDING, claims, 1, RERUN.lease_ms)


LAWS: tuple[Law, ...] = (
    nothing_is_read_where_nothing_was_written,
    an_insert_where_something_stands_shows_it_and_writes_nothing,
    a_swap_that_names_the_wrong_stamp_writes_nothing,
    a_swap_of_a_record_that_vanished_says_so,
    a_swap_sent_twice_is_done_once_and_recognised,
    a_swap_that_was_done_is_answered_as_done,
    a_swap_that_lost_is_answered_as_lost,
    of_rival_changes_to_one_record_exactly_one_is_done,
    callers_at_once_each_get_their_own_answer,
    whole_operations_at_once_keep_apart,
    an_owner_recognises_its_own_earlier_write,
)
