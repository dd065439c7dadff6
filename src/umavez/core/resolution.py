"""What a human or a reconciler does to a record nobody runs: resolve it, or free its key."""

from __future__ import annotations

import json
from typing import NamedTuple

from umavez.core.drafts import drafted
from umavez.core.encoding.texts import legible
from umavez.core.flow import Flow, Read, Reply, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Record, Settled, Status
from umavez.core.telling import events
from umavez.errors import OperationInProgress, UmavezError

MOST_EVIDENCE = 200
"""Entries of evidence that a record keeps beside its first: callers may ask a silent far side for years."""


class NoSuchRecord(UmavezError, LookupError):
    """Nothing is stored under the key."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"Nothing is recorded for {key.operation} {key.value!r} of {key.scope!r}.")
        self.key = key


class Resolution(NamedTuple):
    """A decision about a record, with who took it and why.

    `settled` is the outcome to keep; None frees the key, so that the operation may run again.
    """

    settled: Settled | None
    by: str
    reason: str


class RecordChanged(UmavezError):
    """The record is no longer the one that was decided about: somebody wrote it since. `record` is what stands now."""

    def __init__(self, record: Record) -> None:
        key = record.key
        super().__init__(
            f"{key.operation} {key.value!r} has changed since you looked (now {record.status.value}, "
            f"attempt {record.attempt}); look again and decide anew."
        )
        self.key = key
        self.record = record


class AlreadySettled(UmavezError):
    """The record has an outcome; only an explicit override may change it."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"{key.operation} {key.value!r} is settled already; pass override=True to change it.")
        self.key = key


def resolve(
    key: Key,
    resolution: Resolution,
    keep: Millis,
    stamp: str,
    *,
    override: bool = False,
    expected: str | None = None,
    forgotten: str | None = None,
) -> Flow[tuple[Record, Draft]]:
    """Close a record by decision. Returns what stood there and what was written.

    Where nothing stands, an outcome is recorded all the same if there is a stamp `forgotten`: a restored database knows
    nothing of what came after its moment.

    `expected` is the stamp of the record that was decided about: a decision about attempt 1 must not close attempt 2.
    Raises NoSuchRecord, and RecordChanged where another stamp stands than `expected`. Unless `override`, raises
    OperationInProgress while somebody holds a live lease, and AlreadySettled for a record with an outcome. A holder
    whose record was settled over its head is told ClaimLost; a live one is never freed over its head, for then it
    would run twice.
    """
    seen: Reply = yield Read(key)
    for _ in range(8):
        if isinstance(seen, Swapped):
            seen = yield Read(key)
            continue
        if seen.current is None and forgotten is not None and resolution.settled is not None:
            # Unknown first, and decided then as every other: whoever asks in between is not let in to run it.
            seen = yield Swap(None, Draft(key, forgotten, Status.UNKNOWN, claims=True, error="forgotten"))
            continue
        if seen.current is None:
            raise NoSuchRecord(key)
        if expected is not None and seen.current.stamp != expected:
            raise RecordChanged(seen.current)
        _refuse_if_closed(seen.current, seen.now, override=override, frees=resolution.settled is None)
        draft = _resolved(seen.current, resolution, keep, stamp, seen.now)
        # What stands in its way is looked at next, and not read again: by a transaction's snapshot that could be what
        # stood there long ago, for ever.
        reply = yield Swap(seen.current.stamp, draft)
        if isinstance(reply, Swapped) or (reply.current is not None and reply.current.stamp == stamp):
            return seen.current, draft
        seen = reply
    raise OperationInProgress(key, 1.0)


def _refuse_if_closed(record: Record, now: Instant, *, override: bool, frees: bool) -> None:
    if record.status is Status.PENDING and not record.lapsed(now) and (frees or not override):
        raise OperationInProgress(record.key, ((record.lease_until or now) - now) / 1000)
    if record.settled is not None and not override:
        raise AlreadySettled(record.key)


def _resolved(record: Record, resolution: Resolution, keep: Millis, stamp: str, now: Instant) -> Draft:
    settled = resolution.settled
    what = "released" if settled is None else "resolved"
    entry = noted(record.evidence, now, what, resolution.by, resolution.reason)
    event = events.decided(record, frees=settled is None, by=resolution.by, reason=resolution.reason)
    draft = drafted(record, stamp)._replace(keep=keep, evidence=entry, settled=settled, event=event)
    if settled is None:
        # Attempts start anew: whoever frees a key means it to run, also after the retries were used up.
        return draft._replace(status=Status.FAILED, attempt=0, error=f"released by {resolution.by}")
    return draft._replace(
        status=Status.SUCCESS if settled.ok else Status.FAILED, error=None if settled.ok else settled.body
    )


def noted(evidence: str | None, now: Instant, what: str, by: str, reason: str) -> str:
    """The evidence text with one more entry: when, what, who and why. The first entry and the latest are kept."""
    entries = json.loads(evidence) if evidence else []
    entries.append({"at": now, "what": what, "by": legible(by), "reason": legible(reason)})
    return json.dumps(entries[:1] + entries[1:][-MOST_EVIDENCE:], ensure_ascii=False)
