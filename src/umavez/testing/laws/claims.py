"""Laws of claiming: who may run, who must wait, and what an overtaken owner can still do (nothing)."""

from __future__ import annotations

from collections.abc import Callable

from umavez.core.protocol import Busy, Exhausted, Granted, Replay
from umavez.core.record import Settled, Status
from umavez.errors import ClaimLost
from umavez.testing.harness import LEASE, RETRIES, AnyBench, Holder, Job
from umavez.testing.laws.law import Law, outcome_of

RIVALS = 8
KEYS = 4
DONE = Settled(True, '"done"')


def of_rivals_for_a_free_key_exactly_one_is_granted(bench: AnyBench) -> None:
    """Law 1, on several keys at once, so that stores which batch are put to the test as well."""
    _one_granted_per_key(bench, free=True)


def of_rivals_for_a_lapsed_lease_exactly_one_is_granted(bench: AnyBench) -> None:
    """Law 2."""
    fences = [bench.claim(bench.key(f"k{number}")).fence for number in range(KEYS)]
    bench.lapse()
    winners = _one_granted_per_key(bench, free=False)
    assert all(winner.claim.fence > max(fences) for winner in winners), "a takeover needs a higher fence"
    assert all(winner.taken_over is not None for winner in winners), "a takeover tells whom it took over"


def of_rivals_for_a_freed_key_exactly_one_is_granted(bench: AnyBench) -> None:
    """A failure that may be retried is retried by one caller."""
    for number in range(KEYS):
        claim = bench.claim(bench.key(f"k{number}"))
        bench.drive(claim.fail("not today"))
    _one_granted_per_key(bench, free=False)


def of_rivals_for_an_expired_key_exactly_one_is_granted(bench: AnyBench) -> None:
    """What has expired is claimed anew by one caller."""
    for number in range(KEYS):
        bench.drive(bench.claim(bench.key(f"k{number}")).settle(DONE))
    bench.expire()
    _one_granted_per_key(bench, free=True)


def _one_granted_per_key(bench: AnyBench, *, free: bool) -> list[Granted]:
    keys = [bench.key(f"k{number}") for number in range(KEYS)]
    verdicts = bench.together([bench.admission(key) for key in keys for _ in range(RIVALS)])
    winners: list[Granted] = []
    for number, key in enumerate(keys):
        told = verdicts[number * RIVALS : (number + 1) * RIVALS]
        granted = outcome_of(told, Granted)
        assert len(granted) == 1, f"{len(granted)} of {RIVALS} rivals were granted one key"
        assert len(outcome_of(told, Busy)) == RIVALS - 1, "every other rival is told Busy"
        assert bench.record(key).stamp == granted[0].claim.draft.stamp, "the winner's stamp stands"
        assert (granted[0].claim.draft.attempt == 1) is free, "only a free key starts at attempt 1"
        winners += granted
    return winners


def a_running_key_is_busy_for_the_rest_of_its_lease(bench: AnyBench) -> None:
    """Busy says how long, by the store's clock."""
    bench.claim(bench.key())
    bench.clock.advance(LEASE / 2)
    verdict = bench.admit(bench.key())
    assert isinstance(verdict, Busy)
    assert 0 < verdict.retry_after <= LEASE * 500, "half of the lease has passed already"


def a_renewed_lease_counts_from_the_renewal(bench: AnyBench) -> None:
    """Renewing twice at two thirds of the lease keeps rivals out past its first end."""
    claim = bench.claim(bench.key())
    for _ in range(3):
        bench.clock.advance(LEASE * 2 / 3)
        claim = bench.drive(claim.renew())
        assert isinstance(bench.admit(bench.key()), Busy)
    bench.lapse()
    assert isinstance(bench.admit(bench.key()), Granted)


def a_lapsed_claim_that_nobody_took_still_settles(bench: AnyBench) -> None:
    """A lease is for rivals; alone, a late owner is in time."""
    claim = bench.claim(bench.key())
    bench.lapse()
    bench.drive(claim.settle(DONE))
    assert isinstance(bench.admit(bench.key()), Replay)


def an_overtaken_owner_changes_nothing(bench: AnyBench) -> None:
    """Law 5: told ClaimLost, whatever it tries, and the record stands as the new owner left it."""
    for number, change in enumerate(_CHANGES):
        key = bench.key(f"k{number}")
        late = bench.claim(key)
        bench.lapse()
        bench.claim(key)
        _expect_lost(bench, late, change)


def an_overtaken_owner_changes_nothing_that_is_settled(bench: AnyBench) -> None:
    """Law 5 again, after the new owner has finished."""
    for number, change in enumerate(_CHANGES):
        key = bench.key(f"k{number}")
        late = bench.claim(key)
        bench.lapse()
        bench.drive(bench.claim(key).settle(DONE))
        _expect_lost(bench, late, change)


_CHANGES: tuple[Callable[[Holder], Job[Holder]], ...] = (
    lambda holder: holder.settle(Settled(True, '"late"')),
    lambda holder: holder.settle(Settled(False, '"late"')),
    lambda holder: holder.renew(),
    lambda holder: holder.checkpoint('"late"'),
    lambda holder: holder.fail("late"),
    lambda holder: holder.doubt("late"),
)


def _expect_lost(bench: AnyBench, late: Holder, change: Callable[[Holder], Job[Holder]]) -> None:
    before = bench.record(late.draft.key)
    try:
        bench.drive(change(late))
    except ClaimLost:
        assert bench.record(late.draft.key) == before, "an overtaken owner changed the record"
    else:
        raise AssertionError("an overtaken owner was not told ClaimLost")


def a_failure_frees_the_key_until_the_retries_are_used_up(bench: AnyBench) -> None:
    """Law 7, and the end of it: Exhausted with the last error."""
    for attempt in range(1, RETRIES + 2):
        claim = bench.claim(bench.key())
        assert claim.draft.attempt == attempt, "every attempt is counted"
        bench.drive(claim.fail(f"failure {attempt}"))
    verdict = bench.admit(bench.key())
    assert isinstance(verdict, Exhausted)
    assert verdict.record.status is Status.FAILED
    assert verdict.record.error == f"failure {RETRIES + 1}"
    assert verdict.record.retry_count == RETRIES


def the_fence_rises_with_every_claim_and_only_then(bench: AnyBench) -> None:
    """Law 9 across keys, changes and takeovers; `sweeping` has the rest."""
    first = bench.claim(bench.key())
    renewed = bench.drive(bench.drive(first.renew()).checkpoint("1"))
    assert bench.record(bench.key()).fence == first.fence == renewed.fence, "a change keeps the fence"
    other = bench.claim(bench.key("other"))
    assert other.fence > first.fence, "one counter serves the whole store"
    bench.lapse()
    second = bench.claim(bench.key())
    assert second.fence > other.fence, "a takeover gets a new fence"
    assert bench.record(bench.key()).fence == second.fence, "the record bears the claim's fence"
    bench.drive(second.settle(DONE))
    assert bench.record(bench.key()).fence == second.fence, "the settled record bears it still"


LAWS: tuple[Law, ...] = (
    of_rivals_for_a_free_key_exactly_one_is_granted,
    of_rivals_for_a_lapsed_lease_exactly_one_is_granted,
    of_rivals_for_a_freed_key_exactly_one_is_granted,
    of_rivals_for_an_expired_key_exactly_one_is_granted,
    a_running_key_is_busy_for_the_rest_of_its_lease,
    a_renewed_lease_counts_from_the_renewal,
    a_lapsed_claim_that_nobody_took_still_settles,
    an_overtaken_owner_changes_nothing,
    an_overtaken_owner_changes_nothing_that_is_settled,
    a_failure_frees_the_key_until_the_retries_are_used_up,
    the_fence_rises_with_every_claim_and_only_then,
)
