"""Events: what happened to a record beside the clean path. Which event a change stands for is decided here alone.

The clean path (a first claim, settled at attempt 1; a token that is used, a lease that is given back) leaves none: the
record tells it. A store writes an event in the transaction of the swap that it belongs to, or not at all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from umavez.core.encoding.texts import legible

if TYPE_CHECKING:
    from umavez.core.record import Instant, Millis, Record

MOST_EVENTS = 100
"""Events that are kept for a key; the oldest go first. A lease is taken over for years and never swept."""
MOST_REMARKS = 10
"""Events of a key that belong to no swap, beyond which none is kept: anybody may send a key again and again."""
MOST_SAID = 300
"""Characters of what an event says in words."""
GIVEN_BACK = "released"
"""The error of a lease that was given back: a named lease knows no other way to end."""

REMARKS = frozenset({"lost", "mismatched"})
"""The kinds that change no record: a late writer that was stopped, a key that was used for something else."""


class EventDraft(NamedTuple):
    """An event about to be written. `detail` is bounded text, never a result; `trace` is where a tracer saw it."""

    kind: str
    detail: str | None = None
    trace: str | None = None


class PastEvent(NamedTuple):
    """An event as it was kept: at the store's time, of which attempt, under which fence, and by whom."""

    at: Instant
    kind: str
    attempt: int
    fence: int
    holder: str
    detail: str | None = None
    trace: str | None = None


class Process(NamedTuple):
    """A process that holds claims: the prefix of its stamps, and how people find it. Nothing secret.

    `age` is how long it has run when it is announced; a store makes `started_at` and `seen_at` of it.
    """

    prefix: str
    host: str
    pid: int
    app: str
    version: str
    age: Millis = 0
    started_at: Instant = 0
    seen_at: Instant = 0


class Before(NamedTuple):
    """What stood there before a change that replaced it without its holder's word."""

    status: str
    attempt: int
    fence: int
    holder: str
    created_at: Instant
    updated_at: Instant
    lease_until: Instant | None


def holder_of(stamp: str) -> str:
    """Who wrote what bears `stamp`: the owner's name, without the number of the write."""
    return stamp.partition("/")[0]


def prefix_of(holder: str) -> str:
    """The prefix of a holder's process, under which it is announced."""
    return holder.rpartition("-")[0] or holder


def claimed(record: Record, *, fresh: bool) -> EventDraft | None:
    """The event of a claim where `record` stood; None where that is how such a record lives."""
    if fresh:
        return EventDraft("began anew", _written(None, record))
    if record.status == "FAILED":
        return None if record.attempt == 0 or record.error == GIVEN_BACK else EventDraft("retried")
    return EventDraft("taken over", _written(None, record))


def settled(attempt: int, *, ok: bool, adopted: bool) -> EventDraft | None:
    """The event of an outcome: none at attempt 1, unless it was `adopted` from the far side."""
    if adopted:
        return _ADOPTED
    return None if attempt == 1 else _SUCCEEDED if ok else _REFUSED


def failed(error: str) -> EventDraft | None:
    """The event of a failure that frees the key; a lease that is given back has not failed."""
    return None if error == GIVEN_BACK else EventDraft("failed", _words(error))


def doubted(error: str) -> EventDraft:
    """The event of an attempt that ended without an answer, and says so."""
    return EventDraft("unknown", _words(error))


def abandoned(record: Record) -> EventDraft:
    """The event of a lease that was found to be over, where only a person may say more."""
    return EventDraft("lease over", _written(None, record))


def decided(record: Record, *, frees: bool, by: str, reason: str) -> EventDraft:
    """The event of a person's decision about `record`."""
    kind = "released" if frees else "resolved" if record.settled is None else "overridden"
    return EventDraft(kind, _written(f"{by}: {reason}", record))


def said(kind: str, by: str, reason: str) -> EventDraft:
    """The event of what `by` did to a token or a lease, and why."""
    return EventDraft(kind, _words(f"{by}: {reason}"))


CHECKPOINT = EventDraft("checkpoint")
_ADOPTED, _SUCCEEDED, _REFUSED = EventDraft("adopted"), EventDraft("succeeded"), EventDraft("refused")
RERUN = EventDraft("retried")
LOST = EventDraft("lost")
MISMATCHED = EventDraft("mismatched")


def read(detail: str | None) -> tuple[str, Before | None]:
    """What the detail of an event says in words, and what stood there before, where it tells that."""
    if detail is None or not detail.startswith("{"):
        return detail or "", None
    try:
        kept: dict[str, Any] = json.loads(detail)
        return str(kept["said"] or ""), Before(*kept["before"])
    except (ValueError, LookupError, TypeError):
        return detail, None


def _written(words: str | None, record: Record) -> str:
    before = Before(
        str(record.status),
        record.attempt,
        record.fence,
        holder_of(record.stamp)[:64],
        record.created_at,
        record.updated_at,
        record.lease_until,
    )
    return json.dumps({"said": None if words is None else _words(words), "before": before}, ensure_ascii=False)


def _words(text: str) -> str:
    return legible(text)[:MOST_SAID]
