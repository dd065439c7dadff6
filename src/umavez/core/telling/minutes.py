"""Minutes: how often what happened in each minute and hour, for charts that outlive the processes that counted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from umavez.core.record import Instant, Millis

MINUTE, HOUR = 60_000, 3_600_000
"""The spans, in milliseconds, over which is counted."""
KEPT = {MINUTE: 48 * HOUR, HOUR: 90 * 24 * HOUR}
"""Milliseconds for which the numbers of a span are kept."""
EDGES = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Seconds up to which each bucket counts; one more is for what took longer."""
BUCKETS = len(EDGES) + 1


class Tally(NamedTuple):
    """How often something of a `kind` happened to an operation in the span that began `at`, by the store's clock.

    `seconds` is what they took together, and `buckets` how many took how long: by EDGES, not added up. What takes no
    time is in none.
    """

    at: Instant
    operation: str
    kind: str
    count: int  # type: ignore[assignment]  # a tuple of ours is not asked how often it holds a value
    seconds: float = 0.0
    buckets: tuple[int, ...] = (0,) * BUCKETS


def bucket_of(seconds: float) -> int:
    """The bucket in which something that took so long is counted."""
    return bisect_left(EDGES, seconds)


def begun(now: Instant, span: Millis) -> Instant:
    """When the span began that `now` is in."""
    return now - now % span


def summed(tallies: Iterable[Tally]) -> list[Tally]:
    """Of several tallies of one operation, kind and span one, in the order of (at, operation, kind)."""
    sums: dict[tuple[Instant, str, str], Tally] = {}
    for tally in tallies:
        known = sums.get(tally[:3])
        sums[tally[:3]] = tally if known is None else _both(known, tally)
    return [sums[name] for name in sorted(sums)]


def quantile(tallies: Iterable[Tally], share: float) -> float | None:
    """How many seconds that `share` of them took at most, guessed within its bucket; None where none took time.

    What took longer than the last edge is said to have taken as long as it.
    """
    counts = [sum(column) for column in zip(*(tally.buckets for tally in tallies), strict=True)]
    wanted: float = share * sum(counts)
    if not sum(counts):
        return None
    below, lowest = 0, 0.0
    for count, edge in zip(counts, EDGES, strict=False):
        if count and below + count >= wanted:
            within: float = max(wanted - below, 0.0) / count
            return lowest + (edge - lowest) * within
        below, lowest = below + count, edge
    return EDGES[-1]


def _both(one: Tally, other: Tally) -> Tally:
    buckets = tuple(map(int.__add__, one.buckets, other.buckets))
    return Tally(*one[:3], one.count + other.count, one.seconds + other.seconds, buckets)


def flat(tallies: Sequence[Tally]) -> list[tuple[int | float | str, ...]]:
    """Each as a row: at, operation, kind, count, seconds, the buckets. Of two of a name the last counts."""
    named = {tally[:3]: tally for tally in tallies}
    return [(*tally[:5], *tally.buckets) for tally in named.values()]


def tally_of(row: Sequence[object]) -> Tally:
    """The tally in a row as `flat` makes them, whatever numbers a database gave."""
    at, operation, kind, count, seconds, *buckets = row
    numbers = tuple(int(bucket) for bucket in buckets)  # type: ignore[call-overload]  # a number, or it fails
    return Tally(int(at), str(operation), str(kind), int(count), float(seconds), numbers)  # type: ignore[call-overload,arg-type]  # as above
