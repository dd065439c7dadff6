"""Batches: many swaps as the columns of one statement, packed as PostgreSQL's binary arrays.

psycopg's own array dumper takes about a microsecond for each element, and a batch has thousands. Here columns are
taken out of the drafts, compared and joined whole: an element costs Python code only where its column is uneven.

Nearly every batch is plain and goes as BATCH_PLAIN, which does only what such swaps need (decision 0025).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from typing import Any

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Settled, Status
from umavez.core.telling.events import EventDraft
from umavez.stores import rows
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres.errors import failed
from umavez.stores.postgres.values import NO_EVENT, Row, record_of

_HEADER = Struct(">iiIii").pack
_LENGTH = Struct(">i").pack
_INTEGER = Struct(">ii").pack
_BIGINT = Struct(">iq").pack
_ABSENT = b"\xff\xff\xff\xff"
_TRUE, _FALSE = b"\0\0\0\1\1", b"\0\0\0\1\0"
_BOOLEANS, _BYTEAS, _BIGINTS, _INTEGERS, _TEXTS = 16, 17, 20, 23, 25
_DIGEST = _LENGTH(32)

_digest = attrgetter("draft.key.digest")
_new = tuple.__new__  # see core/drafts.py, where its gain is told


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
        *_kept(columns),
        *_told(columns.event, columns.origin),
    ]


def _kept(columns: Any) -> Sequence[bytes | None]:
    """What a draft keeps behind its times."""
    return [
        _texts(columns.fingerprint),
        _texts(columns.process_instance),
        _texts(columns.activity),
        *_outcomes(columns.settled),
        _texts(columns.error),
        _texts(columns.progress),
        _texts(columns.evidence),
    ]


def plain(swaps: Sequence[Swap], offset: int) -> list[Any] | None:
    """The parameters of BATCH_PLAIN, both groups sorted by digest; None where a swap of them needs more than it does.

    It makes first claims, and changes records of a first attempt, which stays one, without a new fence or life.
    """
    ordered = sorted(swaps, key=_digest)
    claims = _first_claims([swap.draft for swap in ordered if swap.expected is None])
    changes = claims and _plain_changes([swap for swap in ordered if swap.expected is not None])
    return [offset, *claims, *changes] if claims and changes else None


def _first_claims(drafts: Sequence[Draft]) -> Sequence[bytes | None] | None:
    if not drafts:
        return _NO_CLAIMS
    columns: Any = Draft._make(zip(*drafts, strict=True))
    if not _all(columns.status, Status.PENDING) or not _all(columns.attempt, 1):
        return None
    if not all(_all(values, None) for values in (columns.keep, columns.settled, columns.error, columns.progress)):
        return None
    return [
        _byteas([key.digest for key in columns.key]),
        *[_texts(names) for names in zip(*[rows.key_of(key)[1:] for key in columns.key], strict=True)],
        _texts(columns.stamp),
        _bigints(columns.lease),
        _texts(columns.fingerprint),
        _texts(columns.process_instance),
        _texts(columns.activity),
        _texts(columns.evidence),
    ]


def _plain_changes(swaps: Sequence[Swap]) -> Sequence[bytes | None] | None:
    if not swaps:
        return _NO_CHANGES
    expected, drafts = zip(*swaps, strict=True)
    columns: Any = Draft._make(zip(*drafts, strict=True))
    if True in columns.claims or True in columns.fresh or not _all(columns.attempt, 1):
        return None
    return [
        _byteas([key.digest for key in columns.key]),
        _texts(expected),
        _texts(columns.stamp),
        _texts(columns.status),
        _bigints(columns.lease),
        _bigints(columns.keep),
        *_kept(columns),
    ]


_NO_CLAIMS, _NO_CHANGES = (None,) * 10, (None,) * 14


def _all(values: Sequence[Any], value: Any) -> bool:
    return values.count(value) == len(values)


def packed(swaps: Sequence[Swap], offset: int, *, tells: bool = False) -> tuple[str, Row]:
    """The statement of a batch in which nobody knows yet what is, and its parameters.

    `tells`: some of it have an event or an origin. Raises NotStorable and StoreUnavailable for what cannot be sent.
    """
    for swap in swaps:
        rows.refuse_long_texts(swap.draft)
    try:
        if not tells and (values := plain(swaps, offset)):
            return sql.BATCH_PLAIN, tuple(values)
        return sql.BATCH_TELLING if tells else sql.BATCH, tuple(batch(swaps, offset))
    except UnicodeEncodeError as error:
        # Only the one who brought it is to blame: sent again one by one, it fails alone.
        raise failed(error, lost=False) from error


def replies(swaps: Sequence[Swap], answer: Sequence[Row]) -> list[Swapped | Stale | None]:
    """What a batch was answered for each swap; None where it must be sent again by itself: somebody came between."""
    (now, fences, digests, *_), *stale = answer
    done = dict(zip(digests or (), fences or (), strict=True))
    found = {row[-1]: row for row in stale}
    answers: list[Swapped | Stale | None] = []
    for swap in swaps:
        key = swap.draft.key
        if (fence := done.get(key.digest)) is not None:
            answers.append(_new(Swapped, (fence, now)))
        else:
            row = found.get(key.digest)
            answers.append(None if row is None else Stale(record_of(key, row[3:-1]), now))
    return answers


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
