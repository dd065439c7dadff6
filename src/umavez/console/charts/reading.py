"""Reading: what was counted, as far as a page can take it in."""

from __future__ import annotations

import time
from typing import NamedTuple

from umavez.console.books import Books
from umavez.core.record import Millis
from umavez.core.telling.gauges import GAUGES
from umavez.core.telling.minutes import Tally
from umavez.stores import Tallies

MINUTES, HOURS = 60, 168
"""What one chart shows: an hour in minutes, a week in hours."""
FRESH = 10.0
"""Seconds that a chart may be old: those who count write that often."""
MOST = 40_000
"""Numbers that a page takes in at once."""
FIRST = 2
"""Spans that are read before all others."""
QUICK, PATIENCE = 0.1, 1.0
"""Seconds in which they are read where nothing is amiss; and that the reading of all of them may take."""


class Counted(NamedTuple):
    """What was counted in the last `many` spans; fewer than were asked for where there was too much."""

    tallies: list[Tally]
    many: int


def tallied(books: Books, span: Millis, many: int, operation: str) -> list[Tally]:
    """What was counted of one operation in the last `many` spans; nothing where this store keeps no minutes."""
    store = books.engine.store
    return store.tallied(span, span * many, operation, MOST) if isinstance(store, Tallies) else []


def all_tallied(books: Books, span: Millis, many: int) -> Counted:
    """What was counted of all operations. Of too much the earliest spans are left out: the present is what matters.

    A store gives the earliest of too many, and each process tells 200 operations apart: so the last spans are asked
    for first, and what they hold and took says how far back the others may go.
    """
    store = books.engine.store
    if not isinstance(store, Tallies):
        return Counted([], many)
    began = time.monotonic()
    last = store.tallied(span, span * FIRST, None, MOST)
    many = fitting(many, len(last), time.monotonic() - began)
    found = store.tallied(span, span * many, None, MOST)
    while len(found) >= MOST and many > FIRST:  # it was busier before
        many = max(many // 2, FIRST)
        found = store.tallied(span, span * many, None, MOST)
    return Counted([tally for tally in found if tally.operation != GAUGES], many)


def fitting(many: int, numbers: int, seconds: float) -> int:
    """How many of `many` spans can be read, where the last FIRST held so many numbers and took so long."""
    room = MOST * 9 // 10 * FIRST // max(numbers, 1)
    quick = many if seconds < QUICK else int(PATIENCE / seconds * FIRST)
    return max(min(many, room, quick), FIRST)
