"""SQLite's statements, and a swap as the sequence of them: sans-I/O, for every kind of connection."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Query, Record
from umavez.core.telling.events import MOST_EVENTS, EventDraft, holder_of
from umavez.stores.keeping import bare, telling
from umavez.stores.rows import (
    Marks,
    conditions,
    key_of,
    order,
    record_of,
    refuse_long_texts,
    telling_record_of,
    values_of,
)
from umavez.stores.texts import statement

Statement = tuple[str, tuple[Any, ...]]
Statements = Generator[Statement, Any, Swapped | Stale]
"""Yields statements, each to be executed at once. Is sent the first row of what each shows, or None; of one that shows
nothing, how many rows it has changed."""

_new = tuple.__new__  # see core/drafts.py, where its gain is told
VERSION = 2
MARKS = Marks("?", "?", "?")
NEXT_FENCES = "UPDATE umavez_meta SET value = value + ? WHERE name = 'fence'"
LAST_FENCE = "SELECT value FROM umavez_meta WHERE name = 'fence'"
SCHEMA_VERSION = "SELECT value FROM umavez_meta WHERE name = 'schema'"
FENCE = "SELECT fence FROM idempotency_records WHERE digest = ?"
"""The fence that a change keeps. Asking by RETURNING would take longer than a statement more (docs/decisions/0025)."""
SELECT = statement("sqlite", "select")
INSERT = statement("sqlite", "insert")
UPDATE = statement("sqlite", "update")
TAKE = statement("sqlite", "take")
FIND = statement("sqlite", "find")
SWEEP = statement("sqlite", "sweep")
SELECT_TELLING = statement("sqlite", "select_telling")
INSERT_TELLING = statement("sqlite", "insert_telling")
ORIGINATED = "UPDATE idempotency_records SET origin = ? WHERE digest = ?"
ORIGIN = "SELECT origin FROM idempotency_records WHERE digest = ?"
TALLY = statement("sqlite", "tally")
TALLIED = statement("sqlite", "tallied")
FORGET_MINUTES = statement("sqlite", "forget_minutes")
FORGET_HOLDERS = "DELETE FROM umavez_holders WHERE seen_at < ?"
MINDS = "SELECT count(*) FROM sqlite_master WHERE name = 'umavez_minutes'"
EVENT = statement("sqlite", "event")
FORGET = statement("sqlite", "forget")
SWEEP_EVENTS = statement("sqlite", "sweep_events")
HISTORY = statement("sqlite", "history")
REMARK = statement("sqlite", "remark")
REMARKED = "SELECT count(*) FROM umavez_events WHERE digest = ? AND kind IN ('lost', 'mismatched')"
ANNOUNCE = statement("sqlite", "announce")
PROCESSES = statement("sqlite", "processes")
KEEPS = (
    "SELECT (SELECT count(*) FROM sqlite_master WHERE name IN ('umavez_events', 'umavez_holders')) = 2"
    " AND EXISTS (SELECT 1 FROM pragma_table_info('idempotency_records') WHERE name = 'origin')"
)
"""Whether events and origins can be kept in this file: one that is joined before it was opened may be older."""


def fenced(swap: Swap) -> bool:
    """Whether the record that `swap` writes gets a new fence."""
    return swap.expected is None or swap.draft.claims


def looking(draft: Draft) -> str:
    """The statement that shows a draft what stands where it should go; its row is for `standing`."""
    return SELECT if draft.origin is None else SELECT_TELLING


def standing(draft: Draft, row: tuple[Any, ...] | None) -> Record | None:
    """The record in a row of `looking`; None where nothing stands."""
    if row is None:
        return None
    return record_of(draft.key, row) if draft.origin is None else telling_record_of(draft.key, row)


def swapping(swap: Swap, now: Instant, fence: int | None = None, *, current: bool = False) -> Statements:
    """The statements of one swap. They must run inside one write transaction.

    `fence` was set aside for it by somebody who has looked at the key already; without one, a key that is taken is
    looked at first, so that a replay writes nothing. `current`: the file is known to keep events and origins.
    """
    refuse_long_texts(swap.draft)
    if not current and telling(swap.draft) and not (yield KEEPS, ())[0]:
        swap = bare(swap)
    draft, digest = swap.draft, swap.draft.key.digest
    if fence is None and fenced(swap):
        row = yield looking(draft), (digest,)
        if (None if row is None else row[0]) != swap.expected:
            return Stale(standing(draft, row), now)
        yield NEXT_FENCES, (1,)
        (fence,) = yield LAST_FENCE, ()
    if not (yield _writing(swap, now, fence)):
        row = yield looking(draft), (digest,)
        return Stale(standing(draft, row), now)
    if fence is None:
        (fence,) = yield FENCE, (digest,)
    if telling(draft):
        yield from _told(swap, now, fence)
    return _new(Swapped, (fence, now))


def _writing(swap: Swap, now: Instant, fence: int | None) -> Statement:
    """The statement that puts the draft where it should go, if the expected stamp stands there."""
    expected, draft = swap
    digest, lease, keep = draft.key.digest, draft.lease, draft.keep
    values = values_of(draft, None if lease is None else now + lease, None if keep is None else now + keep)
    if expected is None:
        row = (*key_of(draft.key), fence, fence, now, now, *values)
        return (INSERT, row) if draft.origin is None else (INSERT_TELLING, (*row, draft.origin))
    if draft.claims or draft.fresh:
        return TAKE, (fence, draft.fresh, now, now, *values, digest, expected)
    return UPDATE, (now, *values, digest, expected)


def _told(swap: Swap, now: Instant, fence: int) -> Generator[Statement, Any, None]:
    """Keep what a swap that was just done has to tell beside its record."""
    draft, digest = swap.draft, swap.draft.key.digest
    if draft.origin is not None and swap.expected is not None:
        yield ORIGINATED, (draft.origin, digest)
    if draft.event is not None:
        yield EVENT, event_values(draft.key, draft.event, now, draft.attempt, fence, holder_of(draft.stamp))
        yield FORGET, (digest, digest, MOST_EVENTS)


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
