"""Laws of sweeping: it deletes the dead, spares the living, and changes no answer."""

from __future__ import annotations

from umavez.core.protocol import Busy, Doubtful, Replay
from umavez.core.record import Settled
from umavez.testing.harness import HOLD, KEEP, AnyBench
from umavez.testing.laws.law import Law

DONE = Settled(True, "1")


def an_expired_record_answers_like_none_swept_or_not(bench: AnyBench) -> None:
    """Law 8: first attempt, new content allowed, nothing inherited; for outcomes and failures alike."""
    for swept in (False, True):
        for ending in ("settled", "failed"):
            key = bench.key(f"{ending}-{swept}")
            _ended(bench, key.value, ending)
            bench.expire()
            if swept:
                bench.sweep(10_000)
                assert bench.read(key).current is None, "an expired record was not swept"
            claim = bench.claim(key)
            assert claim.draft.attempt == 1, "an expired record's attempts still count"
            assert claim.draft.progress is None
            record = bench.record(key)
            assert (record.error, record.settled, record.expires_at) == (None, None, None)


def what_runs_is_never_swept(bench: AnyBench) -> None:
    """A claim survives any age, lapsed or not; its owner can still settle."""
    claim = bench.claim(bench.key())
    bench.clock.advance(365 * 86_400)
    bench.sweep(10_000)
    record = bench.record(bench.key())
    assert record.expires_at is None
    bench.drive(claim.settle(DONE))
    assert isinstance(bench.admit(bench.key()), Replay)


def what_is_unknown_is_never_swept(bench: AnyBench) -> None:
    """A doubt waits for a human, however long."""
    bench.drive(bench.claim(bench.key(), HOLD).doubt("no answer"))
    bench.clock.advance(365 * 86_400)
    bench.sweep(10_000)
    assert isinstance(bench.admit(bench.key(), HOLD), Doubtful)


def sweeping_spares_what_is_kept(bench: AnyBench) -> None:
    """Law 14, any number of times: outcomes and failures within their time, and claims."""
    _ended(bench, "settled", "settled")
    _ended(bench, "failed", "failed")
    bench.claim(bench.key("running"))
    for _ in range(3):
        bench.sweep(10_000)
    assert isinstance(bench.admit(bench.key("settled")), Replay)
    assert bench.claim(bench.key("failed")).draft.attempt == 2
    assert isinstance(bench.admit(bench.key("running")), Busy)


def sweeping_keeps_to_its_limit(bench: AnyBench) -> None:
    """It says how many it deleted, and deletes no more than it was told."""
    _empty(bench)
    for number in range(5):
        _ended(bench, f"k{number}", "settled")
    bench.expire()
    assert bench.sweep(2) == 2
    assert _standing(bench, 5) == 3
    assert [bench.sweep(2), bench.sweep(2), bench.sweep(2)] == [2, 1, 0]
    assert _standing(bench, 5) == 0


def sweeping_waits_as_long_as_it_is_told(bench: AnyBench) -> None:
    """`older_than` spares what expired lately, so that people can still look at it."""
    _ended(bench, "k0", "settled")
    bench.clock.advance(KEEP + 600)
    bench.sweep(10_000, 3_600_000)
    assert _standing(bench, 1) == 1
    bench.clock.advance(3600)
    bench.sweep(10_000, 3_600_000)
    assert _standing(bench, 1) == 0


def the_fence_rises_across_expiry_and_sweeping(bench: AnyBench) -> None:
    """Law 9: a fence never repeats, though no record remembers it any more."""
    fences: list[int] = []
    for swept in (False, True, True):
        claim = bench.claim(bench.key())
        fences.append(claim.fence)
        bench.drive(claim.settle(DONE))
        bench.expire()
        if swept:
            bench.sweep(10_000)
    fences.append(bench.claim(bench.key()).fence)
    assert fences == sorted(set(fences)), f"the fence fell or repeated: {fences}"


def _ended(bench: AnyBench, value: str, ending: str) -> None:
    claim = bench.claim(bench.key(value))
    if ending == "settled":
        bench.drive(claim.settle(DONE))
    else:
        bench.drive(claim.fail("no"))


def _standing(bench: AnyBench, count: int) -> int:
    return sum(bench.read(bench.key(f"k{number}")).current is not None for number in range(count))


def _empty(bench: AnyBench) -> None:
    """Sweep what earlier laws left in a shared store, so that counts are this law's own."""
    bench.expire()
    while bench.sweep(10_000):
        pass


LAWS: tuple[Law, ...] = (
    an_expired_record_answers_like_none_swept_or_not,
    what_runs_is_never_swept,
    what_is_unknown_is_never_swept,
    sweeping_spares_what_is_kept,
    sweeping_keeps_to_its_limit,
    sweeping_waits_as_long_as_it_is_told,
    the_fence_rises_across_expiry_and_sweeping,
)
