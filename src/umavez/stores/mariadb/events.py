"""The statements about events of the MariaDB store. No I/O here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umavez.core.flow import Swap
from umavez.core.key import Key
from umavez.core.telling.events import MOST_EVENTS, MOST_REMARKS, EventDraft, PastEvent, Process, holder_of
from umavez.stores.keeping import FORGOTTEN
from umavez.stores.mariadb.statements import TABLE, Rows, Statement, Texts
from umavez.stores.texts import statement

KEEPS = Statement(
    "SELECT count(*) = 2 AND EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database()"
    f" AND table_name = '{TABLE}' AND column_name = 'origin')"
    " FROM information_schema.tables WHERE table_schema = database()"
    " AND table_name IN ('umavez_events', 'umavez_holders')"
)
"""Whether events and origins can be kept here: what holds them may not be there yet."""

ORIGIN = f"SELECT origin FROM {TABLE} WHERE digest = X%s"

FORGET = statement("mariadb", "event").partition("; ")[2]
ROW = "(X%s, %s, %s, %s, %s, %s, %s, %s)"
UNFENCED = -1
"""Stands for a fence that a claim gets only when its record is changed, later in the same transaction."""


def telling(swaps: Sequence[Swap]) -> Statement:
    """Keep the events of a batch just before its changes are made: on locked records, so it is certain which will."""
    rows = ", ".join([ROW] * len(swaps))
    text = (
        " INSERT INTO umavez_events (at, digest, kind, attempt, fence, holder, detail, trace)"
        f" WITH v (digest, expected, claims, kind, attempt, holder, detail, trace) AS (VALUES {rows})"
        f" SELECT @umavez_now, v.digest, v.kind, v.attempt, IF(v.claims, {UNFENCED}, t.fence), v.holder, v.detail,"
        f" v.trace FROM v STRAIGHT_JOIN {TABLE} t ON t.digest = v.digest AND t.stamp = v.expected;"
    )
    values: list[Any] = []
    for expected, draft in swaps:
        kind, detail, trace = draft.event or ("", None, None)
        holder = holder_of(draft.stamp)
        values += (draft.key.digest.hex(), expected, draft.claims, kind, draft.attempt, holder, detail, trace)
    return Statement(text, values)


def told(swaps: Sequence[Swap]) -> Statement:
    """After the changes: give the events of claims their fences, and leave the latest of each key."""
    takers = [swap.draft.key.digest.hex() for swap in swaps if swap.draft.claims]
    text, values = "", list(takers)
    if takers:
        text = (
            f" UPDATE umavez_events e STRAIGHT_JOIN {TABLE} t ON t.digest = e.digest SET e.fence = t.fence"
            f" WHERE e.digest IN ({', '.join(['X%s'] * len(takers))}) AND e.fence = {UNFENCED};"
        )
    for swap in swaps:
        text += f" {FORGET}"
        values += [swap.draft.key.digest.hex()] * 2
    return Statement(text, values)


def looking(key: Key) -> Statement:
    """The events of `key`."""
    return Statement(statement("mariadb", "history"), (key.digest.hex(), MOST_EVENTS))


def found(rows: Rows) -> list[PastEvent]:
    """The answer to `looking`, oldest first."""
    return [PastEvent(*row) for row in reversed(rows)]


def originating(swaps: Sequence[Swap]) -> Statement:
    """Keep where the claims of a batch came from, once its changes are made; the rows are locked by then."""
    marks = ", ".join(["(X%s, %s, %s)"] * len(swaps))
    text = (
        f" UPDATE (WITH v (digest, stamp, origin) AS (VALUES {marks}) SELECT * FROM v) v"
        f" STRAIGHT_JOIN {TABLE} t ON t.digest = v.digest AND t.stamp = v.stamp SET t.origin = v.origin;"
    )
    return Statement(text, [word for _, draft in swaps for word in (draft.key.digest.hex(), draft.stamp, draft.origin)])


def looking_for_origin(key: Key) -> Statement:
    """Where the last claim of `key` came from that said so."""
    return Statement(ORIGIN, (key.digest.hex(),))


def remarking(texts: Texts, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> Statement:
    """Keep an event that belongs to no swap."""
    digest = key.digest.hex()
    words = (digest, event.kind, attempt, fence, holder, event.detail, event.trace, digest, digest, MOST_REMARKS)
    return Statement(texts.remark, words)


def announcing(texts: Texts, process: Process) -> list[Statement]:
    """Say that `process` lives, and forget those that were not seen for long."""
    old = Statement(f"DELETE FROM umavez_holders WHERE seen_at < {texts.now} - %s", (FORGOTTEN,))
    return [Statement(texts.announce, process[:6]), old]


def processes(limit: int) -> Statement:
    """The processes that were announced."""
    return Statement(statement("mariadb", "processes"), (limit,))


def sweeping(digests: Sequence[str]) -> Statement:
    """Delete the events of records that are about to be deleted."""
    return Statement(f"DELETE FROM umavez_events WHERE digest IN ({', '.join(['X%s'] * len(digests))})", digests)
