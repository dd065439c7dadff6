"""History: what happened to one key, moment by moment, from its record and the events kept with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from umavez.core.record import Instant, Record, Status
from umavez.core.telling.events import GIVEN_BACK, REMARKS, Before, PastEvent, Process, holder_of, prefix_of, read

SCALE = (1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
"""Up to which gap, in milliseconds, one step of the drawing goes; what is longer takes one more."""

SILENT = 90_000
"""Milliseconds after which a process that was not seen is taken for gone: it is announced three times as often."""

_WRITTEN = {
    Status.PENDING: "claimed or renewed",
    Status.SUCCESS: "settled",
    Status.FAILED: "failed",
    Status.UNKNOWN: "outcome unknown",
}
_LATE, _OTHER = "came too late and was stopped", "key sent with another request"
_KINDS = {
    "unknown": "outcome unknown",
    "lease over": "outcome unknown",
    "lost": _LATE,
    "mismatched": _OTHER,
    "succeeded": "settled",
}
"""What kinds of events are called among moments, where that is another word."""
_HOLDING = frozenset({"began", "claimed or renewed", "checkpoint", "retried", "taken over", "began anew"})
"""The moments after which somebody holds the key."""
_ENTRIES = {
    "resolved": ("resolved", "overridden"),
    "released": ("released",),
    "adopted": ("adopted",),
    "not happened": ("retried", "failed"),
    "cannot tell": ("unknown",),
    "taken away": ("taken away",),
    "cancelled": ("cancelled",),
}
"""The entries of evidence that were written with an event, and that event's kinds."""
_DECISIONS = frozenset({"resolved", "overridden", "released", "taken away", "cancelled"})
"""The events of what a person did: not the process that wrote it down is who."""


class Moment(NamedTuple):
    """One thing that happened. `what` is a word of the page's language; names and reasons are strangers' text.

    `seen` is when its process was last heard of, where that tells whether it is gone. `message` is the id of a message
    that it is about.
    """

    at: Instant
    what: str
    who: str = ""
    detail: str = ""
    attempt: int = 0
    fence: int = 0
    trace: str = ""
    seen: Instant | None = None
    message: str = ""


class Step(NamedTuple):
    """A moment as it is drawn: how long after the one before, how far below it (0 to 6), whether the key is held."""

    moment: Moment
    gap: int
    far: int
    held: bool


Names = Mapping[str, Process]
"""The processes that were announced, by the prefix of their stamps."""


def name_of(holder: str, names: Names) -> str:
    """A holder as people know it: host and number of its process; its own name where nobody announced that."""
    process = names.get(prefix_of(holder))
    return holder if process is None else f"{process.host}/{process.pid}"


def moments(record: Record, now: Instant, events: Sequence[PastEvent] = (), names: Names | None = None) -> list[Moment]:
    """The moments of `record`, the oldest first."""
    known = names or {}
    told = _Telling(record, events, known)
    found = [*told.beginnings(), *told.evidence(), *told.events(), *told.end(now)]
    return sorted(dict.fromkeys(found), key=lambda moment: moment.at)


class _Telling:
    def __init__(self, record: Record, events: Sequence[PastEvent], names: Names) -> None:
        self._record = record
        self._events = events
        self._names = names
        self._changed_at = {event.at for event in events if event.kind not in REMARKS}
        self._entries: dict[int, tuple[str, str]] = {}
        self._before = {index: read(event.detail)[1] for index, event in enumerate(events)}

    def beginnings(self) -> Iterator[Moment]:
        """Where each life began: this one's, and those that events remember."""
        lives = {self._record.created_at: ""}
        for index, event in enumerate(self._events):
            before = self._before[index]
            if event.kind == "began anew":
                lives.pop(event.at, None)  # the event itself tells it
            if before is not None and before.created_at not in self._changed_at:
                lives[before.created_at] = lives.get(before.created_at) or self._name(before.holder)
        if not self._changed_at:
            lives[self._record.created_at] = self._name(holder_of(self._record.stamp)) if self._untouched() else ""
        return (Moment(at, "began", who) for at, who in lives.items())

    def _untouched(self) -> bool:
        """Whether whoever wrote the record last is who began it."""
        return self._record.attempt == 1 and not _entries_of_people(self._record)

    def evidence(self) -> Iterator[Moment]:
        """What was seen and decided, but for what an event tells, which gets its reason."""
        left = list(enumerate(self._events))
        for entry in reversed(_entries_of_people(self._record)):
            kinds = _ENTRIES.get(str(entry.get("what")), ())
            index = next((index for index, event in reversed(left) if event.kind in kinds), None)
            if index is None:
                yield _told(entry, self._record)
            else:
                left = [each for each in left if each[0] != index]
                self._entries[index] = (str(entry.get("by") or ""), str(entry.get("reason") or ""))

    def events(self) -> Iterator[Moment]:
        """The events, and what they say of what stood there before."""
        for index, event in enumerate(self._events):
            before = self._before[index]
            if before is not None:
                yield from self._ended(before)
            who, said = self._said(index, event)
            what = _KINDS.get(event.kind, event.kind)
            yield Moment(event.at, what, who, said, event.attempt, event.fence, event.trace or "")

    def _said(self, index: int, event: PastEvent) -> tuple[str, str]:
        """Who it was, and what was said of it."""
        said = read(event.detail)[0]
        by, reason = self._entries.get(index, ("", ""))
        if by and event.kind in _DECISIONS:
            return by, reason
        return self._name(event.holder), said or reason

    def _ended(self, before: Before) -> Iterator[Moment]:
        """How what stood there had ended: by its lease, or on the clean path, of which no event is kept."""
        who = self._name(before.holder)
        if before.status == Status.PENDING:
            if before.lease_until is not None:
                yield self._lapse(before.lease_until, before.holder, before.attempt, before.fence)
        elif before.updated_at not in self._changed_at:
            yield Moment(before.updated_at, _WRITTEN[Status(before.status)], who, "", before.attempt, before.fence)

    def _lapse(self, at: Instant, holder: str, attempt: int, fence: int) -> Moment:
        process = self._names.get(prefix_of(holder))
        seen = None if process is None else process.seen_at
        return Moment(at, "lease over", self._name(holder), "", attempt, fence, "", seen)

    def end(self, now: Instant) -> Iterator[Moment]:
        """The last change, where no event tells it, and a lease that is over and was taken by nobody yet."""
        record = self._record
        holder = holder_of(record.stamp)
        if not self._changed_at or record.updated_at > max(self._changed_at):
            yield from self._changed()
        if record.lapsed(now) and record.lease_until is not None:
            yield self._lapse(record.lease_until, holder, record.attempt, record.fence)

    def _changed(self) -> Iterator[Moment]:
        """The last change. A token that waits has had none; a lease that was given back has not failed."""
        record = self._record
        what, why = _WRITTEN[record.status], record.error or ""
        if record.settled is not None:
            what = "settled"
        elif record.status is Status.FAILED:
            if record.attempt == 0 and record.updated_at == record.created_at:
                return
            if record.error == GIVEN_BACK:
                what, why = "given back", ""
            elif record.attempt == 0:
                what = "freed"
        yield Moment(record.updated_at, what, self._name(holder_of(record.stamp)), why, record.attempt, record.fence)

    def _name(self, holder: str) -> str:
        return name_of(holder, self._names)


def steps(found: Sequence[Moment]) -> list[Step]:
    """Moments on one line of time, with the gaps between them to scale."""
    drawn: list[Step] = []
    before: Instant | None = None
    for moment in sorted(found, key=lambda one: one.at):
        gap = 0 if before is None else max(moment.at - before, 0)
        held = moment.what in _HOLDING or (moment.what in _ASIDE and bool(drawn) and drawn[-1].held)
        drawn.append(Step(moment, gap, sum(gap >= edge for edge in SCALE), held))
        before = moment.at
    return drawn


_ASIDE = frozenset({_LATE, _OTHER})
"""The moments that change nothing about who holds the key."""


def entries(record: Record) -> list[dict[str, Any]]:
    """The evidence kept with a record, oldest first. What another program wrote in another form is its words."""
    try:
        kept = json.loads(record.evidence) if record.evidence else []
    except (ValueError, RecursionError):
        kept = [record.evidence]
    found = kept if isinstance(kept, list) else [kept]
    return [entry if _is_entry(entry) else {"at": None, "reason": str(entry)} for entry in found]


def _entries_of_people(record: Record) -> list[dict[str, Any]]:
    """The entries about something that happened: not the first, where it only says how many decide."""
    found = entries(record)
    return found[1:] if record.takes_two else found


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("at", ""), int | None)


def _told(entry: dict[str, Any], record: Record) -> Moment:
    what, who, why = (str(entry.get(name) or "") for name in ("what", "by", "reason"))
    return Moment(_moment(entry, record), what or "noted", who, why)


def _moment(entry: dict[str, Any], record: Record) -> Instant:
    if entry["at"] is not None:
        return int(entry["at"])
    return record.created_at if "what" in entry else record.updated_at
