"""Rows: how a draft is laid out in SQL, and how a row becomes a record. Shared by the SQL stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from umavez.core.key import MAX_LENGTH, Key
from umavez.core.record import Draft, Instant, Millis, Query, Record, Settled, Status
from umavez.errors import NotStorable

READ = (
    "stamp, fence, status, attempt, created_at, updated_at, lease_until, expires_at, fingerprint,"
    " process_instance_id, activity_id, outcome_kept, result_data, error_message, progress, evidence"
)
"""The columns of a record as they are read, in the order of `record_of`; instants in milliseconds."""

WRITE = (
    "stamp, status, attempt, lease_until, expires_at, fingerprint, process_instance_id, activity_id,"
    " outcome_kept, result_data, error_message, progress, evidence"
)
"""The columns that every write sets, in the order of `values_of`."""

KEY = "digest, scope, operation_name, idempotency_key"
"""The columns that never change."""

_STATUSES = {status.value: status for status in Status}
_TEXTS = {status: status.value for status in Status}
"""Looked up: an enum runs code of its own each time it is asked for a member's value."""

_SUCCESS = Status.SUCCESS.value
_new = tuple.__new__  # see core/drafts.py, where its gain is told


def values_of(draft: Draft, lease: Millis | Instant | None, keep: Millis | Instant | None) -> tuple[Any, ...]:
    """The draft's values in the order of WRITE; `lease` and `keep` are its own, as the store's statement wants them."""
    settled = draft.settled
    return (
        draft.stamp,
        _TEXTS[draft.status],
        draft.attempt,
        lease,
        keep,
        draft.fingerprint,
        draft.process_instance,
        draft.activity,
        settled is not None,
        None if settled is None else settled.body,
        draft.error,
        draft.progress,
        draft.evidence,
    )


def refuse_long_texts(draft: Draft) -> None:
    """Raises NotStorable where a text of `draft` is longer than its column.

    Asked before it is sent: MariaDB without strict mode would cut it silently, and the others would refuse the write as
    if to try again could help.
    """
    if draft.process_instance is None and draft.activity is None and len(draft.stamp) <= MAX_LENGTH:
        return
    for name in ("stamp", "process_instance", "activity"):
        text = getattr(draft, name)
        if isinstance(text, str) and len(text) > MAX_LENGTH:
            raise NotStorable(f"The {name} has {len(text)} characters and at most {MAX_LENGTH} are kept; shorten it.")


def key_of(key: Key) -> tuple[bytes, str, str, str]:
    """The key's values in the order of KEY."""
    return key.digest, key.scope, key.operation, key.value


def record_of(key: Key, row: Sequence[Any]) -> Record:
    """The record in `row`, whose columns are those of READ."""
    (
        stamp, fence, status, attempt, created_at, updated_at, lease_until, expires_at, fingerprint,
        process_instance, activity, kept, body, error, progress, evidence,
    ) = row  # fmt: skip
    settled = _new(Settled, (status == _SUCCESS, body)) if kept else None
    return _new(
        Record,
        (
            key,
            stamp,
            fence,
            _STATUSES[status],
            attempt,
            created_at,
            updated_at,
            lease_until,
            expires_at,
            fingerprint,
            process_instance,
            activity,
            settled,
            error,
            progress,
            evidence,
            None,  # origin
        ),
    )


def telling_record_of(key: Key, row: Sequence[Any]) -> Record:
    """The record in `row`, whose columns are those of READ and the origin."""
    return record_of(key, row[:-1])._replace(origin=row[-1])


class Marks(NamedTuple):
    """How a driver's statements name their parameters: any value, an instant in milliseconds, a digest.

    `digest_of` makes of a digest what its placeholder takes.
    """

    value: str
    instant: str
    digest: str
    digest_of: Callable[[bytes], Any] = bytes


def conditions(query: Query, now: int, marks: Marks) -> tuple[str, list[Any]]:
    """The WHERE text of `query` and its values. Only columns named here, words of Status and placeholders go into the
    text, never anything from the caller.
    """
    mark, instant = marks.value, marks.instant
    wanted: list[tuple[str, Any]] = [
        (f"scope = {mark}", query.scope),
        (f"operation_name = {mark}", query.operation),
        (f"idempotency_key = {mark}", query.value),
        (f"process_instance_id = {mark}", query.process_instance),
        (f"created_at <= {instant}", None if query.older_than is None else now - query.older_than),
        (f"created_at >= {instant}", None if query.newer_than is None else now - query.newer_than),
        (f"status = 'PENDING' AND lease_until <= {instant}", now if query.lapsed else None),
    ]
    chosen = [(text, value) for text, value in wanted if value is not None]
    texts, values = [text for text, _ in chosen], [value for _, value in chosen]
    if query.status is not None:
        # Written out: a plan that serves every status cannot use an index on the records of one.
        texts.append(f"status = '{Status(query.status).value}'")
    if query.digests is not None:
        texts.append(f"digest >= {marks.digest} AND digest <= {marks.digest}")
        values += map(marks.digest_of, query.digests)
    if query.after is not None:
        beyond = "<" if query.newest_first else ">"
        # The first comparison is for the index on created_at, which the others could not use.
        texts.append(
            f"created_at {beyond}= {instant} AND (created_at {beyond} {instant} OR digest {beyond} {marks.digest})"
        )
        values += [query.after.created_at, query.after.created_at, marks.digest_of(query.after.digest)]
    return " AND ".join(texts) or "1 = 1", values


def order(query: Query) -> str:
    """The ORDER BY of `query`."""
    if query.digest_prefix is not None:
        # An expression, because a planner that may walk the index on created_at does so, in search of one record.
        down = " DESC" if query.newest_first else ""
        return f"coalesce(created_at, created_at){down}, digest{down}"
    return "created_at DESC, digest DESC" if query.newest_first else "created_at, digest"
