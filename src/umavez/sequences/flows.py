"""The statements behind numbers, as flows (see umavez.sql.flow). Nothing here commits.

Whoever takes a number holds the lock on the series' row until the transaction ends, so numbers are given one after
the other, and a rollback gives the number back before anyone has seen a later one.
"""

# ruff: noqa: S608 - statements are joined from constants of the module; values always travel as parameters

from __future__ import annotations

from typing import Any, NamedTuple

from umavez.sequences.errors import NumbersExhausted, NumberVoided, SeriesUnknown
from umavez.sequences.ranges import Range, stretch
from umavez.sql.connection import Dialect
from umavez.sql.flow import Ask, SqlFlow, Write, now_at


class Series(NamedTuple):
    """Whose numbers, and which."""

    organisation: str
    series: str


SERIES = "organisation = ? AND series = ?"
TAKE = (
    f"UPDATE umavez_sequences SET next_number = next_number + 1 WHERE {SERIES} AND next_number <= stop_at"
    " RETURNING next_number - 1"
)
TAKE_FOR_KEY = (
    f"WITH seen AS (SELECT number, state FROM umavez_numbers WHERE {SERIES} AND operation_key = ?),"
    f" taken AS (UPDATE umavez_sequences SET next_number = next_number + 1 WHERE {SERIES} AND next_number <= stop_at"
    " AND NOT EXISTS (SELECT 1 FROM seen) RETURNING next_number - 1 AS number),"
    " kept AS (INSERT INTO umavez_numbers (organisation, series, number, operation_key, state, created_at)"
    f" SELECT ?, ?, number, ?, 'USED', {now_at(Dialect.POSTGRES)} FROM taken"
    " ON CONFLICT (organisation, series, operation_key) DO NOTHING RETURNING number)"
    " SELECT (SELECT number FROM seen), (SELECT state FROM seen), (SELECT number FROM taken), (SELECT number FROM kept)"
)
"""PostgreSQL: look for the key's number, take the next one and keep it with the key, in one round trip."""


def taking(condition: str) -> str:
    """The next number as a part of a larger statement (`WITH … AS (…)`) on PostgreSQL: one round trip less.

    It returns `number` where `condition` holds, and no row where a stretch of numbers is used up: then `next_number`
    goes on to the next one. Its `?` are the organisation and the series.
    """
    return TAKE.replace(" RETURNING next_number - 1", f" AND ({condition}) RETURNING next_number - 1 AS number")


GIVE_BACK = f"UPDATE umavez_sequences SET next_number = next_number - 1 WHERE {SERIES}"


def next_number(dialect: Dialect, series: Series, key: str | None) -> SqlFlow[int]:
    """The next number of `series`; with `key` the same one every time. Raises SeriesUnknown, NumbersExhausted."""
    while True:
        if key is None:
            number = yield from _taken(dialect, series)
        elif dialect is Dialect.POSTGRES:
            number = yield from _taken_for_key(series, key)
        else:
            number = yield from _taken_or_seen(dialect, series, key)
        if number is not None:
            return number
        try:
            yield from advance(dialect, series)
        except NumbersExhausted:
            # The last one may have gone to this very key, by a rival that this transaction's snapshot does not show.
            if key is None or (number := (yield from number_of(series, key, _newest(dialect)))) is None:
                raise
            return number


def _taken(dialect: Dialect, series: Series) -> SqlFlow[int | None]:
    if dialect is not Dialect.MARIADB:
        rows = yield Ask(TAKE, series)
        return rows[0][0] if rows else None
    at, stop_at = yield from locked(dialect, series)
    if at > stop_at:
        return None
    yield Write(f"UPDATE umavez_sequences SET next_number = next_number + 1 WHERE {SERIES}", series)
    return at


def _taken_for_key(series: Series, key: str) -> SqlFlow[int | None]:
    rows = yield Ask(TAKE_FOR_KEY, (*series, key, *series, *series, key))
    seen, state, taken, kept = rows[0]
    if seen is not None:
        return valid(series, seen, state)
    if taken is None or kept is not None:
        return kept  # type: ignore[no-any-return]  # a row's value: a number, or None
    # A rival with the same key was ahead and has committed. The row is locked by us, so the number can go back.
    yield Write(GIVE_BACK, series)
    return (yield from number_of(series, key))


def _taken_or_seen(dialect: Dialect, series: Series, key: str) -> SqlFlow[int | None]:
    number = yield from number_of(series, key)
    if number is not None:
        return number
    number = yield from _taken(dialect, series)
    if dialect is Dialect.MARIADB:
        return (yield from _kept_or_given_back(series, number, key))
    if number is not None:
        yield keeping(dialect, series, number, key)
    return number


def _kept_or_given_back(series: Series, taken: int | None, key: str) -> SqlFlow[int | None]:
    """MariaDB: what a rival with the same key has kept since this transaction's snapshot is seen by writing.

    A locking read would see it too, but where the key is missing it locks the gap, and with it other series' keys.
    """
    if taken is None:
        return None
    held = yield from kept_unless_held(series, taken, key)
    if held != taken:
        # The series' row is locked by us, so the number can go back.
        yield Write(GIVE_BACK, series)
    return held


def number_of(series: Series, key: str, lock: str = "") -> SqlFlow[int | None]:
    """The number that was kept with `key`. Raises NumberVoided."""
    rows = yield Ask(
        f"SELECT number, state FROM umavez_numbers WHERE {SERIES} AND operation_key = ?{lock}", (*series, key)
    )
    return valid(series, *rows[0]) if rows else None


def valid(series: Series, number: int, state: str) -> int:
    """The number. Raises NumberVoided for one that was voided."""
    if state == "VOID":
        raise NumberVoided(*series, number)
    return number


def keeping(dialect: Dialect, series: Series, number: int, key: str) -> Write:
    """The statement that keeps a number with its key."""
    text = (
        "INSERT INTO umavez_numbers (organisation, series, number, operation_key, state, created_at)"
        f" VALUES (?, ?, ?, ?, 'USED', {now_at(dialect)})"
    )
    return Write(text, (*series, number, key))


def kept_unless_held(series: Series, number: int, key: str) -> SqlFlow[int]:
    """MariaDB: keep `number` with `key`, unless the key has one already; returns the key's number.

    IGNORE, because ON DUPLICATE KEY UPDATE locks the gap of a second unique index whether there is a duplicate or not.
    All that it could hide besides is a text that does not fit, and their lengths have been looked at.
    """
    kept = keeping(Dialect.MARIADB, series, number, key)
    if (yield Ask(kept.text.replace("INSERT", "INSERT IGNORE", 1) + " RETURNING number", kept.values)):
        return number
    held = yield from number_of(series, key, " FOR UPDATE")
    if held is None:
        raise AssertionError(f"Number {number} of {series.series!r} was given before; its counter was set back.")
    return held


def _newest(dialect: Dialect) -> str:
    """The clause of a read that looks past the transaction's snapshot; SQLite's writers have none."""
    return "" if dialect is Dialect.SQLITE else " FOR UPDATE"


def locked(dialect: Dialect, series: Series) -> SqlFlow[tuple[int, int]]:
    """next_number and stop_at, locked until the transaction ends. Raises SeriesUnknown."""
    rows = yield Ask(f"SELECT next_number, stop_at FROM umavez_sequences WHERE {SERIES}{_newest(dialect)}", series)
    if not rows:
        raise SeriesUnknown(*series)
    return rows[0][0], rows[0][1]


def advance(dialect: Dialect, series: Series) -> SqlFlow[None]:
    """Go on to the next stretch of numbers that may be given. Raises SeriesUnknown, NumbersExhausted."""
    at, stop_at = yield from locked(dialect, series)
    if at <= stop_at:
        return  # a rival has done it
    open_, blocked = yield from ranges_of(dialect, series)
    following = stretch(at, open_, blocked)
    if following is None:
        raise NumbersExhausted(*series)
    yield Write(f"UPDATE umavez_sequences SET next_number = ?, stop_at = ? WHERE {SERIES}", (*following, *series))


def ranges_of(dialect: Dialect, series: Series) -> SqlFlow[tuple[list[Range], list[Range]]]:
    """The open and the blocked ranges, as they are now; the series is `locked`, so they stay so.

    On MariaDB a locking read: a snapshot from before a range was blocked would let all of its numbers be given. By the
    primary key, or it could lock other series' ranges.
    """
    hint, newest = (" FORCE INDEX (PRIMARY)", _newest(dialect)) if dialect is Dialect.MARIADB else ("", "")
    rows: list[Any] = yield Ask(
        f"SELECT kind, first_number, last_number FROM umavez_sequence_ranges{hint} WHERE {SERIES}{newest}", series
    )
    kinds: dict[str, list[Range]] = {"OPEN": [], "BLOCKED": []}
    for kind, first, last in rows:
        kinds[kind].append(Range(first, last))
    return kinds["OPEN"], kinds["BLOCKED"]


def reserve(dialect: Dialect, series: Series, count: int) -> SqlFlow[range]:
    """Up to `count` numbers in a row, at least one. Raises SeriesUnknown, NumbersExhausted."""
    while True:
        at, stop_at = yield from locked(dialect, series)
        if at <= stop_at:
            break
        yield from advance(dialect, series)
    after = min(at + count, stop_at + 1)
    yield Write(f"UPDATE umavez_sequences SET next_number = ? WHERE {SERIES}", (after, *series))
    return range(at, after)
