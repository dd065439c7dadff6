"""The statements of the MariaDB store, and what their answers mean. No I/O here.

Each swap is one compound statement, so one round trip, without the MULTI_STATEMENTS flag that would widen
any injection elsewhere. A digest travels as hexadecimal text into X'…', which no sql_mode can misread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Query, Record
from umavez.core.telling.events import holder_of
from umavez.stores.rows import Marks, conditions, key_of, order, record_of, telling_record_of, values_of
from umavez.stores.texts import statement

TABLE = "idempotency_records"
MARKS = Marks("%s", "%s", "X%s", bytes.hex)
FENCE = "NEXT VALUE FOR umavez_fence"
CLOCK = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 + {offset})"
"""The server's milliseconds. Not UNIX_TIMESTAMP(NOW(3)), which is an hour off when a session's clock is set back."""

FIND = statement("mariadb", "find")
EVENT = statement("mariadb", "event")
ORIGINATED = f"UPDATE {TABLE} SET origin = %s WHERE digest = X%s;"
_DONE = "IF ROW_COUNT() = 1 THEN"

Rows = Sequence[Sequence[Any]]
Reply = Swapped | Stale


class Statement(NamedTuple):
    """A text and its values, as both drivers take them."""

    text: str
    values: Sequence[Any] = ()


class Texts:
    """The statement texts for one clock offset; those of `joined` show the newest row, whatever the transaction sees.

    They are the folder `sql`, one file each, with the one hole `{now}`: the server's time is an expression.
    """

    def __init__(self, offset: int, *, joined: bool = False) -> None:
        self.now = CLOCK.format(offset=int(offset))
        kind = "joined_" if joined else ""
        self.insert = self._text("insert")
        self.claim = self._text(f"{kind}claim")
        self.insert_telling = self._text("insert_telling")
        self.claim_telling = self._text(f"{kind}claim_telling")
        self.change = self._text(f"{kind}change")
        self.take = self._text(f"{kind}take")
        self.read = self._text("read")
        self.expired = self._text("expired")
        self.remark = self._text("remark")
        self.announce = self._text("announce")
        self.tallied = self._text("tallied")
        self.forget_minutes = self._text("forget_minutes")
        plain = self.change, self.take
        self.change_telling, self.take_telling = (text.replace(_DONE, f"{_DONE} {EVENT}") for text in plain)
        self.change_from, self.take_from = (text.replace(_DONE, f"{_DONE} {ORIGINATED}") for text in plain)
        self.change_telling_from, self.take_telling_from = (
            text.replace(_DONE, f"{_DONE} {EVENT} {ORIGINATED}") for text in plain
        )

    def _text(self, name: str) -> str:
        return statement("mariadb", name).replace("{now}", self.now)

    def clock(self) -> Statement:
        """Ask for the store's time alone."""
        return Statement(f"SELECT {self.now}")


@lru_cache(maxsize=64)
def texts_at(offset: int, *, joined: bool = False) -> Texts:
    """The texts for a clock offset, made once: it is zero but in tests."""
    return Texts(offset, joined=joined)


def claiming(texts: Texts, draft: Draft, *, blind: bool) -> Statement:
    """Put `draft` where nothing stands. `blind` inserts without looking first."""
    digest, *names = key_of(draft.key)
    row: tuple[Any, ...] = (digest.hex(), *names, *values_of(draft, draft.lease, draft.keep))
    insert, claim = texts.insert, texts.claim
    if draft.origin is not None:
        row, insert, claim = (*row, draft.origin), texts.insert_telling, texts.claim_telling
    if blind:
        return Statement(insert, row)
    return Statement(claim, (digest.hex(), digest.hex(), *row))


def changing(texts: Texts, expected: str, draft: Draft) -> Statement:
    """Put `draft` where `expected` stands, its event and origin with it; the latter need a transaction around it."""
    digest = draft.key.digest.hex()
    values = (draft.fresh, *values_of(draft, draft.lease, draft.keep), digest, expected)
    whence = () if draft.origin is None else (draft.origin, digest)
    if draft.event is None:
        change, take = (texts.change_from, texts.take_from) if whence else (texts.change, texts.take)
        return Statement(take if draft.claims else change, (*values, *whence, digest))
    kind, detail, trace = draft.event
    told = (digest, kind, draft.attempt, holder_of(draft.stamp), detail, trace, digest, digest, *whence)
    change, take = texts.change_telling, texts.take_telling
    if whence:
        change, take = texts.change_telling_from, texts.take_telling_from
    return Statement(take if draft.claims else change, (*values, *told, digest))


def swapping(texts: Texts, swap: Swap, *, again: bool = False) -> Statement:
    """The statement of a lone swap. `again`: the first answer showed neither a write nor a reason against it."""
    if swap.expected is None:
        return claiming(texts, swap.draft, blind=again)
    return changing(texts, swap.expected, swap.draft)


def answer(swap: Swap, rows: Rows) -> Reply | None:
    """What the lone swap's answer means; None when it says neither and must be repeated."""
    if not rows:
        return None
    done, now, *row = rows[0]
    if swap.expected is not None and done:
        return Swapped(int(row[0]), int(now))
    if done and row[0] == swap.draft.stamp:
        return Swapped(row[1], now)
    current = _record(swap.draft.key, row, told=swap.expected is None and swap.draft.origin is not None)
    if current is not None and current.stamp == swap.expected:
        return None
    return Stale(current, now)


def reading(texts: Texts, key: Key) -> Statement:
    """Look at one record."""
    return Statement(texts.read, (key.digest.hex(),))


def seen(key: Key, rows: Rows) -> Seen:
    """The answer to `reading`."""
    now, *row = rows[0]
    return Seen(_record(key, row), now)


def _record(key: Key, row: Sequence[Any], *, told: bool = False) -> Record | None:
    """The record in `row`; `told`: with its origin behind it."""
    if row[0] is None:
        return None
    return telling_record_of(key, row) if told else record_of(key, row)


def finding(query: Query, now: int) -> Statement:
    """Look for records, in order."""
    where, values = conditions(query, now, MARKS)
    return Statement(f"{FIND} WHERE {where} ORDER BY {order(query)} LIMIT %s", (*values, query.limit))


def found(rows: Rows) -> list[Record]:
    """The answer to `finding`."""
    return [record_of(Key(row[0], row[1], row[2]), row[3:]) for row in rows]


def expired(texts: Texts, limit: int, older_than: int) -> Statement:
    """Choose and lock what may be swept, passing over rows that somebody is just changing."""
    return Statement(texts.expired, (older_than, limit))


def deleting(texts: Texts, digests: Sequence[str], older_than: int) -> Statement:
    """Delete what `expired` chose; says its condition again, so that it can stand alone."""
    marks = ", ".join(["X%s"] * len(digests))
    text = f"DELETE FROM {TABLE} WHERE digest IN ({marks}) AND expires_at <= {texts.now} - %s RETURNING 1"
    return Statement(text, (*digests, older_than))
