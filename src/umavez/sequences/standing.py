"""What stands in the tables of sequences: series with their ranges. Flows, and the arithmetic on what they find."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

from umavez.sequences.flows import Series
from umavez.sequences.ranges import ENDLESS, Range, stretch
from umavez.sql.flow import Ask, SqlFlow

_SERIES_WITH_RANGES = (
    "SELECT s.organisation, s.series, s.next_number, r.kind, r.first_number, r.last_number, r.reason, r.created_at"
    " FROM (SELECT organisation, series, next_number FROM umavez_sequences WHERE {where}"
    " ORDER BY {order} LIMIT ?) s"
    " LEFT JOIN umavez_sequence_ranges r ON r.organisation = s.organisation AND r.series = s.series"
    " ORDER BY s.organisation, s.series, r.first_number, r.kind"
)
"""One statement, so that numbers and ranges are of one moment."""

_ENDS = (
    "NOT EXISTS (SELECT 1 FROM umavez_sequence_ranges e WHERE e.organisation = umavez_sequences.organisation"
    " AND e.series = umavez_sequences.series AND e.kind = 'OPEN' AND e.last_number >= ?)"
)


class Piece(NamedTuple):
    """A range as it is kept: numbers that may be given (OPEN) or never are (BLOCKED), and why."""

    kind: str
    first: int
    last: int
    reason: str | None
    created_at: int


class Standing(NamedTuple):
    """A series: from which number on nothing is given yet, and its ranges."""

    series: Series
    at: int
    pieces: tuple[Piece, ...]

    @property
    def open(self) -> list[Range]:
        """The ranges that numbers are taken from."""
        return self._of("OPEN")

    @property
    def blocked(self) -> list[Range]:
        """The ranges whose numbers are never given."""
        return self._of("BLOCKED")

    def _of(self, kind: str) -> list[Range]:
        return [Range(piece.first, piece.last) for piece in self.pieces if piece.kind == kind]

    @property
    def next_number(self) -> int | None:
        """The number that comes next; None when every number is given or blocked."""
        following = stretch(self.at, self.open, self.blocked)
        return None if following is None else following.first

    @property
    def last_number(self) -> int | None:
        """The last number that was given; None when none was."""
        return last_below(self.at, self.open, self.blocked)

    @property
    def left(self) -> int | None:
        """How many numbers can still be given; None when there is no end to them."""
        return count_from(self.at, self.open, self.blocked)


def last_below(at: int, open_: Iterable[Range], blocked: Iterable[Range]) -> int | None:
    """The highest number below `at` that an open range has and no blocked one; None when there is none."""
    walls = sorted(blocked, key=lambda wall: wall.last, reverse=True)
    tops = [(_under(min(at - 1, piece.last), walls), piece.first) for piece in open_]
    return max((top for top, first in tops if top >= first), default=None)


def _under(at: int, walls: Iterable[Range]) -> int:
    """The first number from `at` downwards that no wall covers; the walls come with the highest end first."""
    for wall in walls:
        if wall.first <= at <= wall.last:
            at = wall.first - 1
    return at


def count_from(at: int, open_: list[Range], blocked: list[Range]) -> int | None:
    """How many numbers from `at` on may be given; None when a range has no end."""
    count = 0
    while (piece := stretch(at, open_, blocked)) is not None:
        if piece.last >= ENDLESS:
            return None
        count += piece.last - piece.first + 1
        at = piece.last + 1
    return count


def standings(organisation: str | None, series: str | None, limit: int) -> SqlFlow[list[Standing]]:
    """Up to `limit` series, by name."""
    wanted = [(column, value) for column, value in (("organisation", organisation), ("series", series)) if value]
    where = " AND ".join(f"{column} = ?" for column, _ in wanted) or "1 = 1"
    return (yield from _found(where, (*(value for _, value in wanted), limit)))


def ending(limit: int) -> SqlFlow[list[Standing]]:
    """Up to `limit` series whose numbers come to an end, those with the shortest way to the next look first."""
    return (yield from _found(_ENDS, (ENDLESS, limit), "stop_at - next_number"))


def _found(where: str, values: tuple[Any, ...], order: str = "organisation, series") -> SqlFlow[list[Standing]]:
    rows = yield Ask(_SERIES_WITH_RANGES.format(where=where, order=order), values)
    found = []
    for (*name, at), group in groupby(rows, key=lambda row: row[:3]):
        found.append(Standing(Series(*name), at, tuple(Piece(*row[3:]) for row in group if row[3] is not None)))
    return found
