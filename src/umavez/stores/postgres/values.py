"""Values on their way to PostgreSQL, as parameters that are prepared once; and what its results say.

psycopg prepares a statement once per combination of parameter types, and it sends None without a type and a small
integer as a smaller type. The dumpers here leave every type to the statement's own casts, so that each statement is
prepared exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from struct import Struct
from struct import error as StructError  # noqa: N812  # its own name says nothing
from typing import Any

import psycopg
from psycopg.abc import AdaptContext, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.types.bool import BoolBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper, StrBinaryDumper

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Record, Status
from umavez.errors import NotStorable
from umavez.stores import rows
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres.errors import failed

Row = tuple[Any, ...]
Values = list[bytes | None]
"""Parameters as they are sent."""
_new = tuple.__new__  # see core/drafts.py, where its gain is told


@cache
def name_of(text: str) -> bytes:
    """The name under which a statement is prepared, the same in every process."""
    return b"umavez_" + sha256(text.encode()).hexdigest()[:32].encode()


class _Text(StrBinaryDumper):
    oid = 0


class _Integer(Int8BinaryDumper):
    oid = 0


class _Bytes(BytesBinaryDumper):
    oid = 0


class _Truth(BoolBinaryDumper):
    oid = 0


def adapt(context: AdaptContext) -> None:
    """Make a connection or cursor of ours send values without types, in binary."""
    context.adapters.register_dumper(str, _Text)
    context.adapters.register_dumper(int, _Integer)
    context.adapters.register_dumper(bytes, _Bytes)
    context.adapters.register_dumper(bool, _Truth)


_YES, _NO = b"\1", b"\0"
_TRUTHS = {True: _YES, False: _NO}
_STATUSES = {status: status.value.encode() for status in Status}
_text, _pack = str.encode, Struct(">q").pack
_ENCODING: dict[type, Callable[[Any], bytes | None]] = {
    str: _text,
    int: _pack,
    bool: _TRUTHS.__getitem__,
    bytes: bytes,
    type(None): lambda _: None,
}


PLAIN = 16
"""Columns of a record that is shown without its origin."""

BINARY = [1] * 32
"""The format of so many parameters."""


def checked(results: Sequence[PGresult]) -> PGresult:
    """The last result. Raises psycopg.Error when the server refused, or failed to commit."""
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, "utf-8")
    if not results:
        raise psycopg.OperationalError("the connection was closed")
    return results[-1]


def loaded(transformer: Transformer, results: Sequence[PGresult]) -> list[Row]:
    """The rows of the answer."""
    result = checked(results)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


def parameters(values: Sequence[Any], key: Key | None = None) -> Values:
    """`encoded`; a text that cannot be sent is what `failed` makes of it for `key`."""
    try:
        return encoded(values)
    except UnicodeEncodeError as error:
        raise failed(error, lost=False, key=key) from error


def encoded(values: Sequence[Any]) -> Values:
    """Parameters in PostgreSQL's binary form; every integer is a bigint."""
    try:
        # None by itself: half of a record's values are, and a call for each is a quarter of this function's time.
        return [value if value is None else _ENCODING[type(value)](value) for value in values]
    except KeyError:
        # A subclass, say of str: rare, so looked at only after the quick way has failed.
        return [_ENCODING[_kind(value)](value) for value in values]


def _kind(value: Any) -> type:
    for kind in (bool, int, str, bytes, type(None)):
        if isinstance(value, kind):
            return kind
    raise NotStorable(f"A {type(value).__name__} cannot be stored; give text.")


def swapping(swap: Swap, offset: int) -> tuple[str, Row]:
    """The statement of a single swap, and its parameters. Raises NotStorable."""
    draft = swap.draft
    rows.refuse_long_texts(draft)
    if swap.expected is None:
        if draft.origin is None:
            return sql.INSERT, inserting(swap, offset)
        return sql.INSERT_TELLING, (*inserting(swap, offset), draft.origin)
    if draft.event is None and draft.origin is None:
        return sql.UPDATE, updating(swap, offset)
    return sql.UPDATE_TELLING, (*updating(swap, offset), *(draft.event or NO_EVENT), draft.origin)


NO_EVENT = (None, None, None)


def inserting(swap: Swap, offset: int) -> Row:
    """The parameters of INSERT."""
    draft = swap.draft
    return (offset, *rows.key_of(draft.key), *rows.values_of(draft, draft.lease, draft.keep))


def updating(swap: Swap, offset: int) -> Row:
    """The parameters of UPDATE."""
    draft = swap.draft
    return (
        offset,
        draft.key.digest,
        swap.expected,
        draft.claims,
        draft.fresh,
        *rows.values_of(draft, draft.lease, draft.keep),
    )


def plainly(swap: Swap, offset: int) -> tuple[str, Values]:
    """The statement of a swap that tells nothing beside its record, and its parameters as they are sent.

    The parameters are those of `swapping`, written out because every call comes by twice: a value costs a third of what
    asking for its type does (0.6 against 1.6 µs for a claim).
    """
    expected, draft = swap
    key = draft.key
    rows.refuse_long_texts(draft)
    try:
        if expected is None:
            head = [_pack(offset), key.digest, _text(key.scope), _text(key.operation), _text(key.value)]
            return sql.INSERT, head + _changes(draft)
        head = [_pack(offset), key.digest, _text(expected), _TRUTHS[draft.claims], _TRUTHS[draft.fresh]]
        return sql.UPDATE_PLAIN, head + _changes(draft)
    except UnicodeEncodeError as error:
        raise failed(error, lost=False, key=key) from error
    except (TypeError, StructError):
        # Something that is neither text nor a number of 64 bits: the slow way says what.
        text, values = swapping(swap, offset)
        return text, parameters(values, key)


def _changes(draft: Draft) -> Values:
    """`rows.values_of` as it is sent."""
    settled = draft.settled
    return [
        _text(draft.stamp),
        _STATUSES[draft.status],
        _pack(draft.attempt),
        None if (lease := draft.lease) is None else _pack(lease),
        None if (keep := draft.keep) is None else _pack(keep),
        None if (fingerprint := draft.fingerprint) is None else _text(fingerprint),
        None if (instance := draft.process_instance) is None else _text(instance),
        None if (activity := draft.activity) is None else _text(activity),
        _NO if settled is None else _YES,
        None if settled is None or (body := settled.body) is None else _text(body),
        None if (error := draft.error) is None else _text(error),
        None if (progress := draft.progress) is None else _text(progress),
        None if (evidence := draft.evidence) is None else _text(evidence),
    ]


def reply_of(key: Key, row: Sequence[Any]) -> Swapped | Stale:
    """The answer in a row of INSERT or UPDATE: time, fence if done, then the record that stands there."""
    now, fence = row[0], row[1]
    if fence is not None:
        return _new(Swapped, (fence, now))
    return _new(Stale, (record_of(key, row[2:]), now))


def record_of(key: Key, row: Sequence[Any]) -> Record | None:
    """The record that stands there; None where nothing does."""
    if row[0] is None:
        return None
    # Who brings an origin is shown one: a column more.
    return rows.record_of(key, row) if len(row) == PLAIN else rows.telling_record_of(key, row)
