"""SQLite's statements, and a swap as the sequence of them: sans-I/O, for every kind of connection."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Instant, Query, Record
from umavez.core.telling.events import MOST_EVENTS, EventDraft, holder_of
from umavez.stores.rows import Marks, conditions, key_of, order, record_of, values_of
from umavez.stores.texts import statement

Statement = tuple[str, tuple[Any, ...]]
Statements = Generator[Statement, Any, Swapped | Stale]
"""Yields statements, each to be executed at once; is sent the first row of the answer, or None."""

VERSION = 2
MARKS = Marks("?", "?", "?")
NEXT_FENCES = "UPDATE umavez_meta SET value = value + ? WHERE name = 'fence' RETURNING value"
SCHEMA_VERSION = "SELECT value FROM umavez_meta WHERE name = 'schema'"
SELECT = statement("sqlite", "select")
INSERT = statement("sqlite", "insert")
UPDATE = statement("sqlite", "update")
TAKE = statement("sqlite", "take")
FIND = statement("sqlite", "find")
SWEEP = statement("sqlite", "sweep")
EVENT = statement("sqlite", "event")
FORGET = statement("sqlite", "forget")
SWEEP_EVENTS = statement("sqlite", "sweep_events")
HISTORY = statement("sqlite", "history")
REMARK = statement("sqlite", "remark")
REMARKED = "SELECT count(*) FROM umavez_events WHERE digest = ? AND kind IN ('lost', 'mismatched')"
ANNOUNCE = statement("sqlite", "announce")
PROCESSES = statement("sqlite", "processes")
KEEPS = "SELECT count(*) = 2 FROM sqlite_master WHERE name IN ('umavez_events', 'umavez_holders')"
"""Whether events can be kept in this file: one that is joined before it was opened may not have their tables yet."""


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
        written = yield INSERT, (*key_of(draft.key), fence, fence, now, now, *values)
    elif draft.claims or draft.fresh:
        written = yield TAKE, (fence, draft.fresh, now, now, *values, digest, swap.expected)
    else:
        written = yield UPDATE, (now, *values, digest, swap.expected)
    if written is not None:
        if draft.event is not None and (yield KEEPS, ())[0]:
            yield EVENT, event_values(draft.key, draft.event, now, draft.attempt, written[0], holder_of(draft.stamp))
            yield FORGET, (digest, digest, MOST_EVENTS)
        return Swapped(written[0], now)
    row = yield SELECT, (digest,)
    return Stale(None if row is None else record_of(draft.key, row), now)


def event_values(key: Key, event: EventDraft, now: Instant, attempt: int, fence: int, holder: str) -> tuple[Any, ...]:
    """The values of EVENT, and the first of REMARK."""
    return now, key.digest, event.kind, attempt, fence, holder, event.detail, event.trace


def finding(query: Query, now: Instant) -> Statement:
    """The statement for `query`; its rows are for `found`."""
    where, values = conditions(query, now, MARKS)
    return f"{FIND} WHERE {where} ORDER BY {order(query)} LIMIT ?", (*values, query.limit)


def found(row: tuple[Any, ...]) -> Record:
    """The record of one row of `finding`."""
    return record_of(Key(row[0], row[1], row[2]), row[3:])
