"""Ranges: which number may come next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

ENDLESS = 2**62
"""The last number of a range without an end."""


class Range(NamedTuple):
    """Numbers from `first` to `last`, both among them."""

    first: int
    last: int = ENDLESS


def stretch(at: int, open_: Iterable[Range], blocked: Iterable[Range]) -> Range | None:
    """The next numbers from `at` on that may be given one after the other; None when there are none left."""
    walls = sorted(blocked)
    for piece in sorted(open_):
        first = _past(max(at, piece.first), walls)
        if first <= piece.last:
            wall = min((wall.first for wall in walls if wall.first > first), default=ENDLESS + 1)
            return Range(first, min(piece.last, wall - 1))
    return None


def _past(at: int, walls: Iterable[Range]) -> int:
    """The first number from `at` on that no wall covers; the walls come in rising order."""
    for wall in walls:
        if wall.first <= at <= wall.last:
            at = wall.last + 1
    return at
