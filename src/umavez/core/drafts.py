"""Drafts: how every change of a record is written down, without I/O and without deciding whether it may happen."""

from __future__ import annotations

from typing import Any, NamedTuple

from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.record import TAKES_TWO, Draft, Millis, Record, Settled, Status
from umavez.core.telling import events
from umavez.core.telling.origin import originated

_new = tuple.__new__
"""Makes a named tuple without its constructor, which is Python code and takes 0.15 to 0.3 µs longer.

A first call makes a dozen named tuples on its way: with constructors everywhere it took 12 % more on `memory:` (32.8
against 29.3 µs, lowest of 64 rounds), a replay 7 %. The order of fields is that of `record.py`; tests hold it.
"""

_PENDING, _SUCCESS, _FAILED = Status.PENDING, Status.SUCCESS, Status.FAILED
"""Looked up once: Python 3.11 runs code of its own each time a member of an enum is named."""

NEVER_BEGAN = "cancelled before its code began"

_TWO = f'{TAKES_TWO}, "by": "declaration", "reason": "four_eyes"}}]'
"""How the evidence of an operation with four eyes begins: whoever has the store alone can read it."""


class Intent(NamedTuple):
    """What a caller means to do once: a key, what the request means, and where it belongs."""

    key: Key
    fingerprint: str | None = None
    process_instance: str | None = None
    activity: str | None = None
    origin: str | None = None
    """What `telling.origin.whence` says of the caller."""


def claiming(intent: Intent, policy: Policy, stamp: str, attempt: int = 1) -> Draft:
    """The claim of an attempt that inherits nothing."""
    key, fingerprint, process_instance, activity, origin = intent
    return _new(
        Draft,
        (
            key,
            stamp,
            _PENDING,
            True,  # claims
            attempt,
            policy.lease_ms,
            None,  # keep
            fingerprint,
            process_instance,
            activity,
            None,  # settled
            None,  # error
            None,  # progress
            _TWO if policy.four_eyes else None,  # evidence
            None if origin is None else originated(stamp, origin),
            False,  # fresh
            None,  # event
        ),
    )


def following(intent: Intent, policy: Policy, stamp: str, record: Record, attempt: int, *, fresh: bool) -> Draft:
    """The claim of the next attempt: it inherits progress and evidence, unless it begins a `fresh` life."""
    draft = claiming(intent, policy, stamp, attempt)
    event = events.claimed(record, fresh=fresh)
    if fresh:
        kept = None if record.settled else record.evidence
        return draft._replace(fresh=True, evidence=kept or draft.evidence, event=event)
    return draft._replace(
        event=event,
        fingerprint=record.fingerprint or intent.fingerprint,
        progress=record.progress,
        evidence=record.evidence or draft.evidence,
        error=record.error,
    )


def renewing(was: Draft, stamp: str) -> Draft:
    """The same claim with a new lease."""
    return _next(was, stamp)


def checkpointing(was: Draft, stamp: str, progress: str) -> Draft:
    """The claim with how far it got, and a new lease."""
    return _next(was, stamp, progress=progress, event=events.CHECKPOINT)


def rerunning(was: Draft, stamp: str, evidence: str) -> Draft:
    """A claim to ask turned into a claim to run: one more attempt."""
    return _next(was, stamp, attempt=was.attempt + 1, evidence=evidence, event=events.RERUN)


def settling(
    was: Draft, stamp: str, settled: Settled, keep: Millis, error: str | None = None, evidence: str | None = None
) -> Draft:
    """The outcome. `error` is what people read of a refusal."""
    # Written out, because _replace costs as much as everything else here and every first call comes by.
    return _new(
        Draft,
        (
            was.key,
            stamp,
            _SUCCESS if settled.ok else _FAILED,
            False,  # claims
            was.attempt,
            None,  # lease
            keep,
            was.fingerprint,
            was.process_instance,
            was.activity,
            settled,
            error,
            was.progress,
            evidence or was.evidence,
            None,  # origin: the claim's stays
            False,  # fresh
            None
            if was.attempt == 1 and evidence is None
            else events.settled(was.attempt, ok=settled.ok, adopted=evidence is not None),
        ),
    )


def failing(was: Draft, stamp: str, error: str, keep: Millis, evidence: str | None = None) -> Draft:
    """A failure that frees the key for another attempt while retries are left."""
    return _next(
        was,
        stamp,
        status=Status.FAILED,
        lease=None,
        keep=keep,
        error=error,
        evidence=evidence or was.evidence,
        event=events.failed(error),
    )


def forgoing(record: Record, stamp: str, keep: Millis) -> Draft:
    """A claim given back whose code never began: the attempt is not counted, and the key is free."""
    error = record.error or NEVER_BEGAN
    return drafted(record, stamp)._replace(
        status=_FAILED, attempt=record.attempt - 1, keep=keep, error=error, event=events.failed(NEVER_BEGAN)
    )


def doubting(was: Draft, stamp: str, error: str, evidence: str | None = None) -> Draft:
    """The attempt ended without an answer: it may have happened."""
    return _next(
        was,
        stamp,
        status=Status.UNKNOWN,
        lease=None,
        keep=None,
        error=error,
        evidence=evidence or was.evidence,
        event=events.doubted(error),
    )


def abandoning(record: Record, stamp: str) -> Draft:
    """The record of an attempt whose lease ran out, now openly in doubt."""
    return drafted(record, stamp)._replace(
        status=Status.UNKNOWN,
        lease=None,
        keep=None,
        error=record.error or "The attempt ended without an answer.",
        event=events.abandoned(record),
    )


def drafted(record: Record, stamp: str) -> Draft:
    """A draft that says what `record` says, under a new stamp; the start of every administrative change."""
    return Draft(
        record.key,
        stamp,
        record.status,
        claims=False,
        attempt=record.attempt,
        fingerprint=record.fingerprint,
        process_instance=record.process_instance,
        activity=record.activity,
        settled=record.settled,
        error=record.error,
        progress=record.progress,
        evidence=record.evidence,
    )


def _next(was: Draft, stamp: str, **changes: Any) -> Draft:
    """The draft with `changes`, under a new stamp. It asks for no new fence, begins no life and tells nothing twice."""
    return was._replace(stamp=stamp, claims=False, fresh=False, **{"event": None, "origin": None, **changes})
