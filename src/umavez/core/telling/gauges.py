"""Gauges: how high a number stood in each minute and hour, kept beside what was counted and read by its highest.

A gauge is no sum: several processes look at the same number. Each keeps the highest that it saw under a kind of its
own, so that what stores add up is one number, and a reader takes the highest of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from umavez.core.telling.minutes import Tally

if TYPE_CHECKING:
    from umavez.core.record import Instant

GAUGES = "umavez.gauges"
"""The operation under which gauges are kept. One of this name that is called is told apart by its kinds."""
NAMES = ("unknown", "lapsed", "outbox", "dead")
"""What is looked at: outcomes that nobody knows, holders that are gone, messages that are due, dead messages."""
_APART = "~"


class Gauge(NamedTuple):
    """How high something stood: how many there were, and for how many seconds the oldest. Each is the highest seen."""

    name: str
    many: int
    seconds: float = 0.0


def higher(one: Gauge, other: Gauge | None) -> Gauge:
    """The highest of both."""
    if other is None:
        return one
    return Gauge(one.name, max(one.many, other.many), max(one.seconds, other.seconds))


def gauge_tally(at: Instant, gauge: Gauge, mark: str) -> Tally:
    """The gauge as it is kept by the looker whose `mark` nobody else has."""
    return Tally(at, GAUGES, f"{gauge.name}{_APART}{mark}", gauge.many, gauge.seconds)


def highest(tallies: Iterable[Tally]) -> dict[tuple[str, Instant], Gauge]:
    """By name and the beginning of its span the highest that anybody saw; what is no gauge is passed over."""
    found: dict[tuple[str, Instant], Gauge] = {}
    for tally in tallies:
        name, apart, _ = tally.kind.partition(_APART)
        if tally.operation == GAUGES and apart and name in NAMES:
            seen = Gauge(name, max(tally.count, 0), max(tally.seconds, 0.0))
            found[name, tally.at] = higher(seen, found.get((name, tally.at)))
    return found
