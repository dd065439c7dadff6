"""Laws of origins, for stores that keep them: written by the swap of their claim, and shown to whoever brings one."""

from __future__ import annotations

from umavez.core.drafts import claiming
from umavez.core.flow import Stale, Swapped
from umavez.core.key import Key
from umavez.core.protocol import Intent, Replay
from umavez.core.record import Draft, Record, Settled
from umavez.core.telling.origin import Origin, made_in, whence
from umavez.testing.harness import RERUN, AnyBench, Holder
from umavez.testing.laws.law import Law

MANY = 12


def an_origin_is_kept_with_its_claim(bench: AnyBench) -> None:
    """From the claim on, through renewals, and with the outcome; who claims without one keeps none."""
    if not bench.keeps_origins:
        return
    key = bench.key()
    holder = _claimed(bench, key, 1)
    wanted = Origin(holder.draft.stamp, _trace(1), "req-1")
    assert bench.origin(key) == wanted
    bench.drive(holder.renew())
    assert bench.origin(key) == wanted
    bench.drive(holder.settle(Settled(True, "1")))
    assert bench.origin(key) == wanted
    bench.claim(bench.key("plain"))
    assert bench.origin(bench.key("plain")) is None
    assert bench.origin(bench.key("nothing")) is None


def who_brings_an_origin_is_shown_the_one_that_stands(bench: AnyBench) -> None:
    """With all the rest of the record, so that a replay can name the call that made it."""
    if not bench.keeps_origins:
        return
    key = bench.key()
    holder = _claimed(bench, key, 1)
    wanted = Origin(holder.draft.stamp, _trace(1), "req-1")
    bench.drive(holder.settle(Settled(True, "1")))
    replay = bench.admit(Intent(key, origin=whence(_trace(2))))
    assert isinstance(replay, Replay)
    assert made_in(replay.record) == wanted
    assert replay.record._replace(origin=None) == bench.record(key)._replace(origin=None)
    assert bench.origin(key) == wanted


def a_later_claim_brings_its_own_origin(bench: AnyBench) -> None:
    """The outcome is that claim's, not the first's; with an event or without."""
    if not bench.keeps_origins:
        return
    key = bench.key()
    bench.drive(_claimed(bench, key, 1).fail("no"))
    second = _claimed(bench, key, 2)
    assert bench.origin(key) == Origin(second.draft.stamp, _trace(2), "req-2")
    quiet = _draft(bench, key, 3)._replace(attempt=2)
    assert isinstance(bench.swap(second.draft.stamp, quiet), Swapped)
    assert bench.origin(key) == Origin(quiet.stamp, _trace(3), "req-3")


def a_claim_without_an_origin_does_not_pass_for_the_last(bench: AnyBench) -> None:
    """Whatever of it is left in the store: what is shown names its holder."""
    if not bench.keeps_origins:
        return
    key = bench.key()
    bench.drive(_claimed(bench, key, 1).fail("no"))
    bench.drive(bench.claim(key).settle(Settled(True, "2")))
    replay = bench.admit(Intent(key, origin=whence(_trace(3))))
    assert isinstance(replay, Replay)
    assert made_in(replay.record) is None


def a_swap_that_was_refused_leaves_no_origin(bench: AnyBench) -> None:
    """A late claim has no say in where the present one came from."""
    if not bench.keeps_origins:
        return
    key = bench.key()
    holder = _claimed(bench, key, 1)
    wanted = Origin(holder.draft.stamp, _trace(1), "req-1")
    assert isinstance(bench.swap("another", _draft(bench, key, 2)), Stale)
    assert isinstance(bench.swap(None, _draft(bench, key, 3)), Stale)
    assert bench.origin(key) == wanted


def origins_of_many_at_once_go_to_their_own_keys(bench: AnyBench) -> None:
    """Where swaps share a statement, too: with an origin and without, new and changed."""
    if not bench.keeps_origins:
        return
    keys = [bench.key(str(number)) for number in range(MANY)]
    failed = [_claimed(bench, key, 77) for key in keys[: MANY // 2]]
    for holder in failed:
        bench.drive(holder.fail("no"))
    intents = [
        Intent(key, origin=whence(_trace(number + 1)) if number % 3 else None) for number, key in enumerate(keys)
    ]
    holders = bench.together([bench.claiming(intent) for intent in intents])
    for number, (key, holder) in enumerate(zip(keys, holders, strict=True)):
        shown = _shown(bench, key)
        assert shown is not None
        assert shown.stamp == holder.draft.stamp
        wanted = Origin(holder.draft.stamp, _trace(number + 1)) if number % 3 else None
        assert made_in(shown) == wanted, f"of key {number}"


def an_origin_goes_with_its_record(bench: AnyBench) -> None:
    """What is swept is gone, and the next life begins with nothing."""
    if not bench.keeps_origins:
        return
    key = bench.key()
    bench.drive(_claimed(bench, key, 1).settle(Settled(True, "1")))
    bench.expire()
    while bench.sweep(1000):
        pass
    assert bench.origin(key) is None
    bench.claim(key)
    assert bench.origin(key) is None


def _claimed(bench: AnyBench, key: Key, number: int) -> Holder:
    return bench.claim(Intent(key, origin=whence(_trace(number), f"req-{number}")))


def _draft(bench: AnyBench, key: Key, number: int) -> Draft:
    return claiming(Intent(key, origin=whence(_trace(number), f"req-{number}")), RERUN, bench.stamp())


def _shown(bench: AnyBench, key: Key) -> Record | None:
    reply = bench.swap(None, _draft(bench, key, 999))
    assert isinstance(reply, Stale)
    return reply.current


def _trace(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


LAWS: tuple[Law, ...] = (
    an_origin_is_kept_with_its_claim,
    who_brings_an_origin_is_shown_the_one_that_stands,
    a_later_claim_brings_its_own_origin,
    a_claim_without_an_origin_does_not_pass_for_the_last,
    a_swap_that_was_refused_leaves_no_origin,
    origins_of_many_at_once_go_to_their_own_keys,
    an_origin_goes_with_its_record,
)
