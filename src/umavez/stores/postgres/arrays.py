"""Batches: many swaps as the columns of one statement, packed as PostgreSQL's binary arrays.

psycopg's own array dumper takes about a microsecond for each element, and a batch has thousands. Here columns are
taken out of the drafts, compared and joined whole: an element costs Python code only where its column is uneven.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from typing import Any

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Settled
from umavez.core.telling.events import EventDraft
from umavez.stores import rows
from umavez.stores.postgres.errors import failed
from umavez.stores.postgres.values import NO_EVENT, Row, reply_of

_HEADER = Struct(">iiIii").pack
_LENGTH = Struct(">i").pack
_INTEGER = Struct(">ii").pack
_BIGINT = Struct(">iq").pack
_ABSENT = b"\xff\xff\xff\xff"
_TRUE, _FALSE = b"\0\0\0\1\1", b"\0\0\0\1\0"
_BOOLEANS, _BYTEAS, _BIGINTS, _INTEGERS, _TEXTS = 16, 17, 20, 23, 25
_DIGEST = _LENGTH(32)

_digest = attrgetter("draft.key.digest")


def batch(swaps: Sequence[Swap], offset: int) -> list[Any]:
    """The parameters of BATCH: a column for each value, sorted by digest."""
    expected, drafts = zip(*sorted(swaps, key=_digest), strict=True)
    columns: Any = Draft._make(zip(*drafts, strict=True))  # a draft of columns: each field holds everybody's
    return [
        offset,
        _byteas([key.digest for key in columns.key]),
        _texts(expected),
        *_names(columns.key, expected),
        *_changes(expected, columns.claims, columns.fresh),
        _texts(columns.stamp),
        _texts(columns.status),
        _integers(columns.attempt),
        _bigints(columns.lease),
        _bigints(columns.keep),
        _texts(columns.fingerprint),
        _texts(columns.process_instance),
        _texts(columns.activity),
        *_outcomes(columns.settled),
        _texts(columns.error),
        _texts(columns.progress),
        _texts(columns.evidence),
        *_told(columns.event, columns.origin),
    ]


def packed(swaps: Sequence[Swap], offset: int) -> Row:
    """`batch`, where nobody knows yet what is in it. Raises StoreUnavailable when a text of it cannot be sent."""
    try:
        return tuple(batch(swaps, offset))
    except UnicodeEncodeError as error:
        # Only the one who brought it is to blame: sent again one by one, it fails alone.
        raise failed(error, lost=False) from error


def replies(swaps: Sequence[Swap], answer: Sequence[Sequence[Any]]) -> list[Swapped | Stale | None]:
    """What BATCH answered to each swap; None where a rival committed meanwhile and it must be sent again."""
    found = {row[-1]: row for row in answer}
    asked = [(swap.draft.key, found.get(swap.draft.key.digest)) for swap in swaps]
    return [None if row is None else reply_of(key, row[:-1]) for key, row in asked]


def _names(keys: Sequence[Key], expected: Sequence[str | None]) -> Sequence[bytes | None]:
    """The texts of the keys. An update leaves them out: they never change."""
    if None not in expected:
        return None, None, None
    given = [rows.key_of(key)[1:] if stamp is None else _UNNAMED for key, stamp in zip(keys, expected, strict=True)]
    return [_texts(names) for names in zip(*given, strict=True)]


_UNNAMED = (None, None, None)


def _changes(expected: Sequence[str | None], claims: Sequence[bool], fresh: Sequence[bool]) -> Sequence[bytes | None]:
    """Who takes a fence and who begins a life. An insert always does both, so it need not say so."""
    if expected.count(None) == len(expected):
        return None, None
    return _booleans(claims), _booleans(fresh)


def _outcomes(settled: Sequence[Settled | None]) -> Sequence[bytes | None]:
    if settled.count(None) == len(settled):
        return None, None
    kept = [one is not None for one in settled]
    return _booleans(kept), _texts([None if one is None else one.body for one in settled])


def _told(events: Sequence[EventDraft | None], origins: Sequence[str | None]) -> Sequence[bytes | None]:
    """The columns that only BATCH_TELLING has."""
    if events.count(None) == origins.count(None) == len(events):
        return ()
    columns = zip(*(event or NO_EVENT for event in events), strict=True)
    return [*(_texts(column) for column in columns), _texts(origins)]


# An array that is absent altogether is a column of NULLs: unnest() fills it up, and it costs nobody anything.


def _texts(values: Sequence[str | None]) -> bytes | None:
    first, count = values[0], len(values)
    # The last before all: where texts differ at all, the ends most often do.
    if values[-1] == first and values.count(first) == count:
        return None if first is None else _head(_TEXTS, count) + _text(first) * count
    if None in values:
        return _head(_TEXTS, count, absent=True) + b"".join([_text(value) for value in values])
    return _head(_TEXTS, count) + (_even(values) or b"".join([_text(value) for value in values]))


def _even(values: Sequence[Any]) -> bytes | None:
    """Texts that are all as long as the first, joined by their length; None where they are not, or not ASCII."""
    size = len(values[0])
    if size > 127 or len(set(map(len, values))) > 1:
        return None
    length = f"\0\0\0{chr(size)}"
    joined = length + length.join(values)
    return joined.encode() if joined.isascii() else None


def _text(value: str | None) -> bytes:
    if value is None:
        return _ABSENT
    data = value.encode()
    return _LENGTH(len(data)) + data


def _byteas(digests: Sequence[bytes]) -> bytes:
    return _head(_BYTEAS, len(digests)) + _DIGEST + _DIGEST.join(digests)


def _integers(values: Sequence[int]) -> bytes:
    return _head(_INTEGERS, len(values)) + b"".join([_INTEGER(4, value) for value in values])


def _bigints(values: Sequence[int | None]) -> bytes | None:
    first, count = values[0], len(values)
    if values.count(first) == count:
        return None if first is None else _head(_BIGINTS, count) + _BIGINT(8, first) * count
    elements = [_ABSENT if value is None else _BIGINT(8, value) for value in values]
    return _head(_BIGINTS, count, absent=None in values) + b"".join(elements)


def _booleans(values: Sequence[bool]) -> bytes | None:
    """Absent when all are false: the statement takes NULL for false."""
    if True not in values:
        return None
    return _head(_BOOLEANS, len(values)) + b"".join([_TRUE if value else _FALSE for value in values])


def _head(kind: int, count: int, *, absent: bool = False) -> bytes:
    """One dimension that begins at 1; `absent`: some element is NULL."""
    return _HEADER(1, absent, kind, count, 1)
