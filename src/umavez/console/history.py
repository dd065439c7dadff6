"""History: what happened to one key, moment by moment. From the record alone, until stores keep their events."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

from umavez.core.reconciliation import CANNOT_TELL
from umavez.core.record import Instant, Record, Status

SCALE = (1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
"""Up to which gap, in milliseconds, one step of the drawing goes; what is longer takes one more."""


class Moment(NamedTuple):
    """One thing that happened. `what` is a word of the page's language; names and reasons are strangers' text."""

    at: Instant
    what: str
    who: str = ""
    detail: str = ""


class Step(NamedTuple):
    """A moment as it is drawn: how long after the one before, and how far below it (0 to 6)."""

    moment: Moment
    gap: int
    far: int


class History(Protocol):
    """Where moments come from. Whoever stores events gives them here; the page draws what it gets."""

    def moments(self, record: Record, now: Instant) -> list[Moment]:
        """What is known of `record`, in any order."""
        ...


class RecordHistory:
    """What a record tells of itself: its birth, its evidence with every decision, its lease and its last change."""

    def moments(self, record: Record, now: Instant) -> list[Moment]:
        """The moments, the oldest first."""
        told = [Moment(record.created_at, "began")]
        told += [_told(entry, record) for entry in entries(record)]
        told.append(Moment(record.updated_at, _WRITTEN[record.status], record.stamp, record.error or ""))
        if record.lapsed(now) and record.lease_until is not None:
            told.append(Moment(record.lease_until, "lease over"))
        return sorted(told, key=lambda moment: moment.at)


_WRITTEN = {
    Status.PENDING: "claimed or renewed",
    Status.SUCCESS: "settled",
    Status.FAILED: "failed or freed",
    Status.UNKNOWN: "outcome unknown",
}


def drawn(histories: list[History], record: Record, now: Instant) -> list[Step]:
    """The moments of all `histories` on one line of time, with the gaps between them to scale."""
    moments = sorted((each for history in histories for each in history.moments(record, now)), key=lambda one: one.at)
    steps, before = [], None
    for moment in moments:
        gap = 0 if before is None else max(moment.at - before, 0)
        steps.append(Step(moment, gap, sum(gap >= edge for edge in SCALE)))
        before = moment.at
    return steps


def entries(record: Record) -> list[dict[str, Any]]:
    """The evidence kept with a record, oldest first. What another program wrote in another form is its words."""
    try:
        kept = json.loads(record.evidence) if record.evidence else []
    except (ValueError, RecursionError):
        kept = [record.evidence]
    found = kept if isinstance(kept, list) else [kept]
    return [entry if _is_entry(entry) else {"at": None, "reason": str(entry)} for entry in found]


def questions(record: Record) -> list[dict[str, Any]]:
    """The entries about questions that the far side could not answer."""
    return [entry for entry in entries(record) if entry.get("what") == CANNOT_TELL]


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("at", ""), int | None)


def _told(entry: dict[str, Any], record: Record) -> Moment:
    what, who, why = (str(entry.get(name) or "") for name in ("what", "by", "reason"))
    return Moment(_moment(entry, record), what or "noted", who, why)


def _moment(entry: dict[str, Any], record: Record) -> Instant:
    if entry["at"] is not None:
        return int(entry["at"])
    return record.created_at if "what" in entry else record.updated_at
