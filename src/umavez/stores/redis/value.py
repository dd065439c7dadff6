"""Values: how a draft is laid out for `swap.lua`, and how a stored value becomes a record again.

One record is one JSON array, with the body behind it as it is; `swap.lua` says what stands where. JSON, so that
people can read it in redis-cli; the body outside, because as a string in the array it would be quoted twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from umavez.core.key import Key
from umavez.core.record import Draft, Record, Settled, Status

LAYOUT = 2
"""The first number of a value. The layout before had none and began with its fence."""

_encode: Callable[[str], str] = json.encoder.encode_basestring
_decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined] # what raw_decode calls
_STATUS = {status.value: status for status in Status}
_QUOTED = {status: f'"{status.value}"' for status in Status}
_SUCCESS = Status.SUCCESS
_tuple = tuple.__new__  # see core/drafts.py
_NO_TEXTS = (None, None, None, None)


class OtherLayout(ValueError):
    """The value was written by a release that lays records out in another way."""


def quoted(text: str) -> bytes:
    """`text` as JSON without a bare quote inside, so that the scripts can tell where it ends."""
    inner = _encode(text)
    if "\\" in inner:
        # Each quote inside stands behind its own backslash, so this hits quotes and nothing else.
        inner = '"' + inner[1:-1].replace('\\"', "\\u0022") + '"'
    return inner.encode("utf-8", "surrogatepass")


def rest_of(draft: Draft) -> bytes:
    """The part of the value behind the stamp, which only Python reads but for the process instance."""
    key, settled = draft.key, draft.settled
    instance = (
        "null" if draft.process_instance is None else quoted(draft.process_instance).decode("utf-8", "surrogatepass")
    )
    kept, body = ("null", "") if settled is None else ("false", "") if settled.body is None else ("true", settled.body)
    fingerprint = "null" if draft.fingerprint is None else _encode(draft.fingerprint)
    texts = (draft.activity, draft.error, draft.progress, draft.evidence)
    if texts == _NO_TEXTS:
        others = "null,null,null,null"
    else:
        others = ",".join(["null" if text is None else _encode(text) for text in texts])
    return (
        f",{instance},{_QUOTED[draft.status]},{draft.attempt},{kept},{fingerprint},{others},"
        f"{_owner(key.scope, key.operation)},{_encode(key.value)}]{body}"
    ).encode("utf-8", "surrogatepass")


@lru_cache(maxsize=1024)
def _owner(scope: str, operation: str) -> str:
    return f"{_encode(scope)},{_encode(operation)}"


def record_of(value: bytes, key: Key | None = None) -> Record | None:
    """The record in `value`, bearing `key` if given; None if it is the record of another key.

    Raises OtherLayout, or LookupError, TypeError or ValueError where it is no record at all.
    """
    text = value.decode("utf-8", "surrogatepass")
    try:
        fields, end = _decode(text, 0)
    except StopIteration:
        raise ValueError("no JSON") from None
    layout, fence, created, updated, lease, expires, stamp, instance, name, attempt, kept, *others = fields
    if layout != LAYOUT:
        raise OtherLayout
    fingerprint, activity, error, progress, evidence, scope, operation, which = others
    if key is None:
        key = Key(scope, operation, which)
    elif key.value != which or key.operation != operation or key.scope != scope:
        return None
    status = _STATUS[name]
    settled = None if kept is None else Settled(status is _SUCCESS, text[end:] if kept else None)
    times = (created, updated, lease, expires)
    words = (fingerprint, instance, activity, settled, error, progress, evidence, None)
    return _tuple(Record, (key, stamp, fence, status, attempt, *times, *words))
