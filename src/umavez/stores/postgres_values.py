"""Values on their way to PostgreSQL: parameters that are prepared once, and columns packed as binary arrays.

psycopg prepares a statement once per combination of parameter types, and it sends None without a type and a small
integer as a smaller type. The dumpers here leave every type to the statement's own casts, so that each statement is
prepared exactly once. Its own array dumper takes about a microsecond for each element; a batch has thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from psycopg.abc import AdaptContext
from psycopg.types.bool import BoolBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper, StrBinaryDumper

from umavez.core.flow import Stale, Swap, Swapped
from umavez.stores import rows

_HEADER = Struct(">iiIii").pack
_LENGTH = Struct(">i").pack
_INTEGER = Struct(">ii").pack
_BIGINT = Struct(">iq").pack
_ABSENT = b"\xff\xff\xff\xff"
_TRUE, _FALSE = b"\0\0\0\1\1", b"\0\0\0\1\0"
_BOOLEANS, _BYTEAS, _BIGINTS, _INTEGERS, _TEXTS = 16, 17, 20, 23, 25


class Column(bytes):
    """A whole column as PostgreSQL's binary array."""


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
    context.adapters.register_dumper(Column, _Bytes)


_TRUTHS = {True: b"\1", False: b"\0"}
_ENCODING: dict[type, Callable[[Any], bytes | None]] = {
    str: str.encode,
    int: Struct(">q").pack,
    bool: _TRUTHS.__getitem__,
    bytes: bytes,
    Column: bytes,
    type(None): lambda _: None,
}


def encoded(values: Sequence[Any]) -> list[bytes | None]:
    """Parameters in PostgreSQL's binary form; every integer is a bigint."""
    try:
        return [_ENCODING[type(value)](value) for value in values]
    except KeyError:
        # A subclass, say of str: rare, so looked at only after the quick way has failed.
        return [_ENCODING[_kind(value)](value) for value in values]


def _kind(value: Any) -> type:
    return next(kind for kind in (bool, int, str, bytes, type(None)) if isinstance(value, kind))


def inserting(swap: Swap, offset: int) -> tuple[Any, ...]:
    """The parameters of INSERT."""
    draft = swap.draft
    return (offset, *rows.key_of(draft.key), *rows.values_of(draft))


def updating(swap: Swap, offset: int) -> tuple[Any, ...]:
    """The parameters of UPDATE."""
    draft = swap.draft
    return (offset, draft.key.digest, swap.expected, draft.claims, draft.fresh, *rows.values_of(draft))


def batch(swaps: Sequence[Swap], offset: int) -> list[Any]:
    """The parameters of BATCH: a column for each value, sorted by digest."""
    ordered = sorted(swaps, key=_digest)
    columns: list[Any] = list(zip(*map(_row, ordered), strict=True))
    packed = (pack(column) for pack, column in zip(_PACKING, columns, strict=True))
    return [offset, *packed]


def _digest(swap: Swap) -> bytes:
    return swap.draft.key.digest


def _row(swap: Swap) -> tuple[Any, ...]:
    """One row of the batch. An update leaves the key's texts out: they never change."""
    expected, draft = swap
    if expected is None:
        digest, scope, operation, value = rows.key_of(draft.key)
        # An insert always takes a fence and begins a life, so it need not say so.
        return (digest, None, scope, operation, value, False, False, *rows.values_of(draft))
    digest = draft.key.digest
    return (digest, expected, None, None, None, draft.claims, draft.fresh, *rows.values_of(draft))


def reply_of(swap: Swap, row: Sequence[Any]) -> Swapped | Stale:
    """The answer in a row of INSERT, UPDATE or BATCH: time, fence if done, then the record that stands there."""
    if row[1] is not None:
        return Swapped(row[1], row[0])
    if row[2] is None:
        return Stale(None, row[0])
    return Stale(rows.record_of(swap.draft.key, row[2:]), row[0])


def _array(kind: int, absent: bool, elements: Sequence[bytes]) -> Column:
    return Column(_HEADER(1, absent, kind, len(elements), 1) + b"".join(elements))


def _texts(values: Sequence[str | None]) -> Column | None:
    first = values[0]
    if values.count(first) == len(values):
        # Often so: nobody has an error, all have the same status. unnest() fills a missing array up with NULL.
        return None if first is None else _array(_TEXTS, False, [_text(first)] * len(values))
    return _array(_TEXTS, None in values, [_text(value) for value in values])


def _text(value: str | None) -> bytes:
    if value is None:
        return _ABSENT
    data = value.encode()
    return _LENGTH(len(data)) + data


def _byteas(values: Sequence[bytes]) -> Column:
    return _array(_BYTEAS, False, [_LENGTH(len(value)) + value for value in values])


def _integers(values: Sequence[int]) -> Column:
    return _array(_INTEGERS, False, [_INTEGER(4, value) for value in values])


def _bigints(values: Sequence[int | None]) -> Column | None:
    first = values[0]
    if values.count(first) == len(values):
        return None if first is None else _array(_BIGINTS, False, [_BIGINT(8, first)] * len(values))
    elements = [_ABSENT if value is None else _BIGINT(8, value) for value in values]
    return _array(_BIGINTS, None in values, elements)


def _booleans(values: Sequence[bool]) -> Column | None:
    """Absent when all are false: each array costs the server a microsecond for each of its elements."""
    if True not in values:
        return None
    return _array(_BOOLEANS, False, [_TRUE if value else _FALSE for value in values])


_PACKING: Sequence[Any] = (
    _byteas,
    _texts,
    _texts,
    _texts,
    _texts,
    _booleans,
    _booleans,
    _texts,
    _texts,
    _integers,
    _bigints,
    _bigints,
    *[_texts] * 3,
    _booleans,
    *[_texts] * 4,
)
