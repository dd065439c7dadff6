"""SQLite's statements, and a swap as the sequence of them: sans-I/O, for every kind of connection."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record
from umavez.stores.rows import KEY, READ, WRITE, conditions, key_of, record_of, values_of

Statement = tuple[str, tuple[Any, ...]]
Statements = Generator[Statement, Any, Swapped | Stale]
"""Yields statements, each to be executed at once; is sent the first row of the answer, or None."""

VERSION = 1
SELECT = f"SELECT {READ} FROM idempotency_records WHERE digest = ?"
INSERT = (
    f"INSERT INTO idempotency_records ({KEY}, fence, created_at, updated_at, {WRITE})"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
UPDATE = (
    f"UPDATE idempotency_records SET fence = ?, created_at = ?, updated_at = ?, ({WRITE})"
    " = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE digest = ? AND stamp = ?"
)
NEXT_FENCE = "UPDATE umavez_meta SET value = value + 1 WHERE name = 'fence' RETURNING value"
SCHEMA_VERSION = "SELECT value FROM umavez_meta WHERE name = 'schema'"
SWEEP = (
    "DELETE FROM idempotency_records WHERE rowid IN"
    " (SELECT rowid FROM idempotency_records WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)"
)


def swapping(swap: Swap, now: Instant) -> Statements:
    """The statements of one swap. They must run inside one write transaction."""
    draft = swap.draft
    row = yield SELECT, (draft.key.digest,)
    if (None if row is None else row[0]) != swap.expected:
        return Stale(None if row is None else record_of(draft.key, row), now)
    if draft.claims or row is None:
        fence: int = (yield NEXT_FENCE, ())[0]
    else:
        fence = row[1]
    values = _dated(draft, now)
    if row is None:
        yield INSERT, (*key_of(draft.key), fence, now, now, *values)
    else:
        created_at = now if draft.fresh else row[4]
        yield UPDATE, (fence, created_at, now, *values, draft.key.digest, swap.expected)
    return Swapped(fence, now)


def _dated(draft: Draft, now: Instant) -> tuple[Any, ...]:
    """The draft's values with lease and keep turned into instants."""
    values = values_of(draft)
    return (*values[:3], _after(now, draft.lease), _after(now, draft.keep), *values[5:])


def _after(now: Instant, duration: Millis | None) -> Instant | None:
    return None if duration is None else now + duration


def finding(query: Query, now: Instant) -> Statement:
    """The statement for `query`; its rows are for `found`."""
    where, values = conditions(query, now, "?")
    text = (
        f"SELECT scope, operation_name, idempotency_key, {READ} FROM idempotency_records"
        f" WHERE {where} ORDER BY created_at LIMIT ?"
    )
    return text, (*values, query.limit)


def found(row: tuple[Any, ...]) -> Record:
    """The record of one row of `finding`."""
    return record_of(Key(row[0], row[1], row[2]), row[3:])
