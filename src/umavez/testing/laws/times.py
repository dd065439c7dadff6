"""Laws of time: the store's clock decides, and one clock decides everything."""

from __future__ import annotations

from umavez.core.flow import Swapped
from umavez.core.protocol import Busy, Granted, Replay
from umavez.core.record import Draft, Settled, Status
from umavez.testing.harness import KEEP, AnyBench
from umavez.testing.laws.law import Law

HOUR = 3_600_000
SLACK = 120_000
"""How much real time a law may take on a server, in milliseconds."""
DONE = Settled(True, "1")


def every_reply_tells_the_time_of_the_store(bench: AnyBench) -> None:
    """When the store's clock moves an hour, so do read, swap done and swap lost."""
    draft = Draft(bench.key(), "a", Status.PENDING, True, 1, 1000)
    first = (bench.read(bench.key()).now, bench.swap(None, draft).now, bench.swap(None, draft).now)
    bench.clock.advance(3600)
    later = Draft(bench.key(), "b", Status.PENDING, True, 1, 1000)
    second = (bench.read(bench.key()).now, bench.swap("a", later).now, bench.swap("a", later).now)
    for before, after in zip(first, second, strict=True):
        assert HOUR <= after - before <= HOUR + SLACK, "a reply does not tell the store's time"


def lease_and_keep_count_from_the_moment_of_writing(bench: AnyBench) -> None:
    """By the store's clock, to the millisecond: the owner plans its renewals by the reply."""
    for expected, stamp in ((None, "a"), ("a", "b")):
        bench.clock.advance(3600)
        draft = Draft(bench.key(), stamp, Status.PENDING, True, 1, 45_000, 90_000)
        reply = bench.swap(expected, draft)
        assert isinstance(reply, Swapped)
        record = bench.record(bench.key())
        assert record.updated_at == reply.now
        assert record.lease_until == reply.now + 45_000, "the lease counts from another moment"
        assert record.expires_at == reply.now + 90_000, "the time to keep counts from another moment"


def the_store_clock_ends_a_lease(bench: AnyBench) -> None:
    """A lease is over when the store's clock says so, whatever the host's clock says."""
    bench.claim(bench.key())
    assert isinstance(bench.admit(bench.key()), Busy)
    bench.lapse()
    assert isinstance(bench.admit(bench.key()), Granted)
    assert isinstance(bench.admit(bench.key()), Busy), "the new owner's lease counts from now"


def created_at_stays_for_one_life_and_begins_anew_with_the_next(bench: AnyBench) -> None:
    """Renewing, failing, retrying and settling keep it; a claim after expiry sets it."""
    claim = bench.claim(bench.key())
    born = bench.record(bench.key()).created_at
    bench.clock.advance(5)
    claim = bench.drive(claim.renew())
    assert bench.record(bench.key()).created_at == born
    bench.drive(claim.fail("no"))
    bench.clock.advance(5)
    retry = bench.claim(bench.key())
    assert bench.record(bench.key()).created_at == born, "a retry belongs to the same life"
    bench.drive(retry.settle(DONE))
    assert bench.record(bench.key()).created_at == born
    bench.expire()
    bench.claim(bench.key())
    assert bench.record(bench.key()).created_at > born, "after expiry a new life begins"


def the_time_to_keep_counts_from_completion(bench: AnyBench) -> None:
    """A long run does not shorten its outcome's life; afterwards the key is free."""
    claim = bench.claim(bench.key())
    for _ in range(3):
        bench.clock.advance(KEEP)
        claim = bench.drive(claim.renew())
    bench.drive(claim.settle(DONE))
    bench.clock.advance(KEEP - SLACK / 1000)
    assert isinstance(bench.admit(bench.key()), Replay)
    bench.clock.advance(SLACK / 1000 + 1)
    assert isinstance(bench.admit(bench.key()), Granted)


def replaying_does_not_prolong_a_life(bench: AnyBench) -> None:
    """A replay writes nothing, so it cannot keep an outcome for ever."""
    bench.drive(bench.claim(bench.key()).settle(DONE))
    before = bench.record(bench.key())
    bench.clock.advance(KEEP / 2)
    assert isinstance(bench.admit(bench.key()), Replay)
    assert bench.record(bench.key()) == before


LAWS: tuple[Law, ...] = (
    every_reply_tells_the_time_of_the_store,
    lease_and_keep_count_from_the_moment_of_writing,
    the_store_clock_ends_a_lease,
    created_at_stays_for_one_life_and_begins_anew_with_the_next,
    the_time_to_keep_counts_from_completion,
    replaying_does_not_prolong_a_life,
)
