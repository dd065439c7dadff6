"""Reading: what was counted, as far as a page can take it in."""

from __future__ import annotations

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
MOST = 30_000
"""Numbers that a page takes in at once."""


class Counted(NamedTuple):
    """What was counted in the last `many` spans; fewer than were asked for where there was too much."""

    tallies: list[Tally]
    many: int


def tallied(books: Books, span: Millis, many: int, operation: str) -> list[Tally]:
    """What was counted of one operation in the last `many` spans; nothing where this store keeps no minutes."""
    store = books.engine.store
    return store.tallied(span, span * many, operation, MOST) if isinstance(store, Tallies) else []


def all_tallied(books: Books, span: Millis, many: int) -> Counted:
    """What was counted of all operations. Of too much the earliest spans are left out: the present is what matters."""
    store = books.engine.store
    if not isinstance(store, Tallies):
        return Counted([], many)
    while True:
        found = store.tallied(span, span * many, None, MOST)
        if len(found) < MOST or many == 1:
            return Counted([tally for tally in found if tally.operation != GAUGES], many)
        many = max(many // 4, 1)
