"""SQLite's statements, and a swap as the sequence of them: sans-I/O, for every kind of connection."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Instant, Query, Record
from umavez.stores.rows import KEY, READ, WRITE, conditions, key_of, record_of, values_of

Statement = tuple[str, tuple[Any, ...]]
Statements = Generator[Statement, Any, Swapped | Stale]
"""Yields statements, each to be executed at once; is sent the first row of the answer, or None."""

VERSION = 1
SELECT = f"SELECT {READ} FROM idempotency_records WHERE digest = ?"
INSERT = (
    f"INSERT INTO idempotency_records ({KEY}, fence, created_at, updated_at, {WRITE})"
    f" VALUES ({', '.join('?' * 20)}) ON CONFLICT (digest) DO NOTHING RETURNING fence"
)
_WRITTEN = f"updated_at = ?, ({WRITE}) = ({', '.join('?' * 13)}) WHERE digest = ? AND stamp = ? RETURNING fence"
# Two statements, because SQLite renews every index on a column that is named, whether its value changes or not.
UPDATE = f"UPDATE idempotency_records SET {_WRITTEN}"
TAKE = (
    "UPDATE idempotency_records SET fence = coalesce(?, fence),"
    f" created_at = CASE WHEN ? THEN ? ELSE created_at END, {_WRITTEN}"
)
NEXT_FENCES = "UPDATE umavez_meta SET value = value + ? WHERE name = 'fence' RETURNING value"
SCHEMA_VERSION = "SELECT value FROM umavez_meta WHERE name = 'schema'"
SWEEP = (
    "DELETE FROM idempotency_records WHERE rowid IN"
    " (SELECT rowid FROM idempotency_records WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)"
)


def fenced(swap: Swap) -> bool:
    """Whether the record that `swap` writes gets a new fence."""
    return swap.expected is None or swap.draft.claims


def swapping(swap: Swap, now: Instant, fence: int | None = None) -> Statements:
    """The statements of one swap. They must run inside one write transaction.

    `fence` was set aside for it by somebody who has looked at the key already; without one, a key that is taken is
    looked at first, so that a replay writes nothing.
    """
    draft, digest = swap.draft, swap.draft.key.digest
    if fence is None and fenced(swap):
        row = yield SELECT, (digest,)
        if (None if row is None else row[0]) != swap.expected:
            return Stale(None if row is None else record_of(draft.key, row), now)
        fence = (yield NEXT_FENCES, (1,))[0]
    lease, keep = draft.lease, draft.keep
    values = values_of(draft, None if lease is None else now + lease, None if keep is None else now + keep)
    if swap.expected is None:
        written = yield INSERT, (*key_of(draft.key), fence, now, now, *values)
    elif draft.claims or draft.fresh:
        written = yield TAKE, (fence, draft.fresh, now, now, *values, digest, swap.expected)
    else:
        written = yield UPDATE, (now, *values, digest, swap.expected)
    if written is not None:
        return Swapped(written[0], now)
    row = yield SELECT, (digest,)
    return Stale(None if row is None else record_of(draft.key, row), now)


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
