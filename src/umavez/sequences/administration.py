"""Looking after a series: defining it, opening and blocking ranges, voiding numbers. Flows; nothing here commits."""

# ruff: noqa: S608 - statements are joined from constants of the module; values always travel as parameters

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from umavez.errors import ConfigurationError
from umavez.sequences.errors import NumberNotGiven, RangeExists, RangeTaken
from umavez.sequences.flows import SERIES, Series, keeping, kept_unless_held, locked, number_of, ranges_of
from umavez.sequences.ranges import ENDLESS, Range
from umavez.sql.connection import Dialect
from umavez.sql.dialect import strictly
from umavez.sql.flow import Ask, SqlFlow, Write, now_at


class Voided(NamedTuple):
    """A number that was given and will not be used, and who said so."""

    number: int
    decided_by: str
    reason: str
    key: str | None


def define(dialect: Dialect, series: Series, ranges: Sequence[Range]) -> SqlFlow[bool]:
    """Create the series with its open ranges; False, and nothing changed, if it is there already."""
    if not ranges:
        raise ConfigurationError("A series needs a range to take numbers from; give at least one.")
    first = min(piece.first for piece in ranges)
    held = yield Ask(f"SELECT 1 FROM umavez_sequences WHERE {SERIES}", series)
    if held:
        return False
    text = "INSERT INTO umavez_sequences (organisation, series, next_number, stop_at) VALUES (?, ?, ?, ?)"
    # By what comes back, not by a count: with CLIENT.FOUND_ROWS, as SQLAlchemy sets it, MariaDB counts what stood too.
    made = yield Ask(f"{_unless_there(dialect, text)} RETURNING next_number", (*series, first, first - 1))
    if not made:
        return False  # a rival has just defined it
    for piece in ranges:
        yield _range(dialect, series, piece, "OPEN", None)
    return True


_BEGINS_THERE = (
    "SELECT last_number FROM umavez_sequence_ranges"
    f" WHERE {SERIES} AND kind = ? AND first_number = ?"  # SERIES is a constant
)


def add_range(dialect: Dialect, series: Series, piece: Range, kind: str, reason: str | None) -> SqlFlow[None]:
    """Open or block a range, from the next number on. Raises RangeTaken, RangeExists, SeriesUnknown."""
    if piece.last < piece.first:
        raise ConfigurationError(f"A range from {piece.first} to {piece.last} is empty; swap its ends.")
    at, _ = yield from locked(dialect, series)
    if piece.first < at:
        raise RangeTaken(*series, at)
    there = yield Ask(_BEGINS_THERE, (*series, kind, piece.first))
    if there:
        raise RangeExists(*series, kind, piece.first, there[0][0])
    yield _range(dialect, series, piece, kind, reason)
    # Whatever was known about the stretch ahead is void now; the next number looks again.
    yield Write(f"UPDATE umavez_sequences SET stop_at = next_number - 1 WHERE {SERIES}", series)


def _range(dialect: Dialect, series: Series, piece: Range, kind: str, reason: str | None) -> Write:
    text = (
        "INSERT INTO umavez_sequence_ranges"
        " (organisation, series, first_number, last_number, kind, reason, created_at)"
        f" VALUES (?, ?, ?, ?, ?, ?, {now_at(dialect)})"
    )
    return Write(strictly(text, dialect), (*series, piece.first, min(piece.last, ENDLESS), kind, reason))


def void(dialect: Dialect, series: Series, number: int, by: str, reason: str) -> SqlFlow[bool]:
    """Record that a given number will not be used; False if that was recorded before.

    Raises NumberNotGiven for one that was never given: it comes later, it is blocked, or no range holds it.
    """
    at, _ = yield from locked(dialect, series)
    open_, blocked = yield from ranges_of(dialect, series)
    if number >= at or not _within(number, open_) or _within(number, blocked):
        raise NumberNotGiven(*series, number)
    # Written without a look: one from before a rival's decision would put this one in its place.
    text = (
        "INSERT INTO umavez_numbers (organisation, series, number, state, created_at)"
        f" VALUES (?, ?, ?, 'USED', {now_at(dialect)})"
    )
    yield Write(_unless_there(dialect, text), (*series, number))
    text = (
        "UPDATE umavez_numbers SET state = 'VOID', decided_by = ?, reason = ?"
        f" WHERE {SERIES} AND number = ? AND state = 'USED'"
    )
    written = yield Write(strictly(text, dialect), (by, reason, *series, number))
    return bool(written)


def _unless_there(dialect: Dialect, text: str) -> str:
    """An INSERT of short, checked values that leaves a row as it is which stands already, seen or not."""
    if dialect is Dialect.MARIADB:
        return text.replace("INSERT", "INSERT IGNORE", 1)
    return f"{text} ON CONFLICT DO NOTHING"


def _within(number: int, ranges: Sequence[Range]) -> bool:
    return any(piece.first <= number <= piece.last for piece in ranges)


def voided(series: Series) -> SqlFlow[list[Voided]]:
    """Every voided number, in rising order."""
    text = (
        "SELECT number, decided_by, reason, operation_key FROM umavez_numbers"
        f" WHERE {SERIES} AND state = 'VOID' ORDER BY number"
    )
    rows = yield Ask(text, series)
    return [Voided(*row) for row in rows]


def adopt(dialect: Dialect, series: Series, number: int, key: str) -> SqlFlow[int]:
    """Keep `number` with `key`, unless the key has one already; returns the key's number."""
    held = yield from number_of(series, key)
    if held is not None:
        return held
    if dialect is Dialect.MARIADB:
        return (yield from kept_unless_held(series, number, key))
    kept = keeping(dialect, series, number, key)
    yield Write(f"{kept.text} ON CONFLICT (organisation, series, operation_key) DO NOTHING", kept.values)
    held = yield from number_of(series, key)
    return number if held is None else held
