"""Values: how a draft is laid out for `swap.lua`, and how a stored value becomes a record again.

One record is one JSON array; `swap.lua` says what stands where. JSON, so that people can read it in
redis-cli.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from hiredis import pack_command

from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Query, Record, Settled, Status

_encode: Callable[[str], str] = json.encoder.encode_basestring
_decode = json.JSONDecoder().raw_decode
_STATUS = {status.value: status for status in Status}

PADDED = {status: f'"{status.value}"'.ljust(9) for status in Status}
"""Each status as it stands in a value: quoted, and as wide as the widest."""

STATUSES = tuple(_STATUS)
"""The names of the status indexes."""


def packed(*words: str | bytes | int) -> bytes:
    """A command as it travels."""
    command: bytes = pack_command(words)  # type: ignore[arg-type] # the stub says a tuple of one
    return command


def quoted(text: str) -> bytes:
    """`text` as JSON without a bare quote inside, so that the scripts can tell where it ends."""
    inner = _encode(text)[1:-1]
    if '"' in inner:
        # Each quote inside stands behind its own backslash, so this hits quotes and nothing else.
        inner = inner.replace('\\"', "\\u0022")
    return b'"%b"' % inner.encode("utf-8", "surrogatepass")


def rest_of(draft: Draft) -> bytes:
    """The part of the record that only Python reads."""
    key, settled = draft.key, draft.settled
    texts = (
        draft.fingerprint,
        draft.activity,
        None if settled is None else settled.body,
        draft.error,
        draft.progress,
        draft.evidence,
        key.scope,
        key.operation,
        key.value,
    )
    joined = ",".join(["null" if text is None else _encode(text) for text in texts])
    kept = "false" if settled is None else "true"
    return f"{draft.attempt},{kept},{joined}]".encode("utf-8", "surrogatepass")


def record_of(value: bytes, key: Key | None = None) -> Record | None:
    """The record in `value`, bearing `key` if given; None if it is the record of another key."""
    fields, _ = _decode(value.decode("utf-8", "surrogatepass"))
    fence, created, updated, lease, expires, name, stamp, instance = fields[:8]
    attempt, kept, fingerprint, activity, body, error, progress, evidence, scope, operation, text = fields[8:]
    if key is None:
        key = Key(scope, operation, text)
    elif key.value != text or key.operation != operation or key.scope != scope:
        return None
    status = _STATUS[name]
    return Record(
        key,
        stamp,
        fence,
        status,
        attempt,
        created,
        updated,
        lease,
        expires,
        fingerprint,
        instance,
        activity,
        Settled(status is Status.SUCCESS, body) if kept else None,
        error,
        progress,
        evidence,
    )


def indexes_for(query: Query) -> list[tuple[str, bytes]]:
    """The indexes, as kind and name, that together lead to every record that may match."""
    if query.process_instance is not None:
        return [("instance", quoted(query.process_instance)[1:-1])]
    if query.lapsed:
        return [("status", Status.PENDING.value.encode())]
    if query.status is not None:
        return [("status", query.status.value.encode())]
    return [("status", name.encode()) for name in STATUSES]


def matches(record: Record, query: Query, now: Instant) -> bool:
    """Whether `record` is what `query` asks for at `now`."""
    key = record.key
    wanted = (query.scope, query.operation, query.value, query.process_instance, query.status)
    found = (key.scope, key.operation, key.value, record.process_instance, record.status)
    if any(want is not None and want != have for want, have in zip(wanted, found, strict=True)):
        return False
    if query.older_than is not None and record.created_at > now - query.older_than:
        return False
    return not query.lapsed or record.lapsed(now)
