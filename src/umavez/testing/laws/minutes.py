"""Laws of minutes, for stores that keep numbers: added up over processes, counted once, gone when they are old."""

from __future__ import annotations

from umavez.core.telling.minutes import BUCKETS, HOUR, KEPT, MINUTE, Tally, begun
from umavez.testing.harness import AnyBench
from umavez.testing.laws.law import Law

DAY = 24 * HOUR


def what_several_processes_counted_is_added_up(bench: AnyBench) -> None:
    """Each for itself; with what it took, and by how long."""
    if not bench.keeps_minutes:
        return
    at = begun(bench.tally("p-0", MINUTE), MINUTE)
    one, other = _tally(bench, at, 3, 0.5, 1), _tally(bench, at, 4, 2.0, 9)
    bench.tally("p-1", MINUTE, one, _tally(bench, at, 1, kind="replayed"))
    bench.tally("p-2", MINUTE, other)
    buckets = tuple(map(sum, zip(one.buckets, other.buckets, strict=True)))
    wanted = Tally(at, bench.scope, "succeeded", 7, 2.5, buckets)
    assert bench.tallied(MINUTE, DAY) == [_tally(bench, at, 1, kind="replayed"), wanted]


def a_tally_that_is_sent_again_counts_once(bench: AnyBench) -> None:
    """Its answer may be lost; and a process says of a minute more and more."""
    if not bench.keeps_minutes:
        return
    at = begun(bench.tally("p-0", MINUTE), MINUTE)
    for many in (2, 5, 5):
        bench.tally("p-1", MINUTE, _tally(bench, at, many, float(many), many))
        assert bench.tallied(MINUTE, DAY) == [_tally(bench, at, many, float(many), many)]


def numbers_keep_to_their_span_and_their_time(bench: AnyBench) -> None:
    """Minutes are no hours, what is too old is not asked for, and of too many the earliest come."""
    if not bench.keeps_minutes:
        return
    now = bench.tally("p-0", MINUTE)
    minutes = [begun(now, MINUTE) - back * MINUTE for back in (3, 2, 1, 0)]
    bench.tally("p-1", HOUR, _tally(bench, begun(now, HOUR), 100))
    bench.tally("p-1", MINUTE, *(_tally(bench, at, number) for number, at in enumerate(reversed(minutes), 1)))
    bench.tally("p-1", MINUTE, _tally(bench, minutes[0], 9, operation="another"))
    assert [tally.at for tally in bench.tallied(MINUTE, DAY)] == minutes
    assert [tally.count for tally in bench.tallied(MINUTE, DAY)] == [4, 3, 2, 1]
    assert [tally.count for tally in bench.tallied(HOUR, DAY)] == [100]
    assert [tally.at for tally in bench.tallied(MINUTE, DAY, 2)] == minutes[:2]
    assert [tally.at for tally in bench.tallied(MINUTE, now - minutes[2] + MINUTE // 2)] == minutes[2:]


def old_numbers_go(bench: AnyBench) -> None:
    """Minutes after two days, hours later; not at once, but without anybody's doing."""
    if not bench.keeps_minutes:
        return
    now = bench.tally("p-0", MINUTE)
    for span in (MINUTE, HOUR):
        bench.tally("p-1", span, _tally(bench, begun(now, span), 1))
    bench.clock.advance(KEPT[MINUTE] // 1000 + 3600)
    later = begun(bench.tally("p-0", MINUTE), MINUTE)
    for _ in range(20):
        bench.tally("p-1", MINUTE, _tally(bench, later, 1))
        bench.tally("p-1", HOUR, _tally(bench, begun(later, HOUR), 1))
    assert [tally.at for tally in bench.tallied(MINUTE, 365 * DAY)] == [later]
    assert [tally.at for tally in bench.tallied(HOUR, 365 * DAY)] == [begun(now, HOUR), begun(later, HOUR)]


def the_stores_clock_says_which_minute_it_is(bench: AnyBench) -> None:
    """Hosts an hour apart count into one minute."""
    if not bench.keeps_minutes:
        return
    before, seen = bench.tally("p-0", MINUTE), bench.read(bench.key()).now
    assert 0 <= seen - before < 10_000
    bench.clock.advance(3600)
    assert 3_600_000 <= bench.tally("p-0", HOUR) - before < 3_610_000


def _tally(
    bench: AnyBench,
    at: int,
    count: int,
    seconds: float = 0.0,
    bucket: int | None = None,
    *,
    kind: str = "succeeded",
    operation: str = "",
) -> Tally:
    buckets = tuple(count if place == bucket else 0 for place in range(BUCKETS))
    return Tally(at, f"{bench.scope}{operation}", kind, count, seconds, buckets)


LAWS: tuple[Law, ...] = (
    what_several_processes_counted_is_added_up,
    a_tally_that_is_sent_again_counts_once,
    numbers_keep_to_their_span_and_their_time,
    old_numbers_go,
    the_stores_clock_says_which_minute_it_is,
)
