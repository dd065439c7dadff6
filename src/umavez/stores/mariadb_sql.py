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
from umavez.stores.rows import KEY, READ, WRITE, conditions, key_of, record_of, values_of

TABLE = "idempotency_records"
FENCE = "NEXT VALUE FOR umavez_fence"
CLOCK = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 + {offset})"
"""The server's milliseconds. Not UNIX_TIMESTAMP(NOW(3)), which is an hour off when a session's clock is set back."""

Rows = Sequence[Sequence[Any]]
Reply = Swapped | Stale


class Statement(NamedTuple):
    """A text and its values, as both drivers take them."""

    text: str
    values: Sequence[Any] = ()


class Texts:
    """The statement texts for one clock offset; `lock` is the clause of reads that must see the newest row."""

    def __init__(self, offset: int, lock: str = "") -> None:
        now = CLOCK.format(offset=int(offset))
        self.now = now
        # A repeated insert keeps what stands: an update to itself locks exclusively, where a duplicate-key error
        # would take shared locks and, on a hot key, end in deadlocks. INSERT IGNORE would truncate silently.
        self.insert = (
            f"INSERT INTO {TABLE} ({KEY}, fence, created_at, updated_at, {WRITE})"
            f" VALUES (X%s, %s, %s, %s, {FENCE}, {now}, {now},"
            f" %s, %s, %s, {now} + %s, {now} + %s, %s, %s, %s, %s, %s, %s, %s, %s)"
            f" ON DUPLICATE KEY UPDATE stamp = {TABLE}.stamp RETURNING 1, {now}, {READ}"
        )
        # A statement of its own looks first: inside IF EXISTS (…) it would lock the gap where the key is missing, and
        # with it whatever other keys belong there, until the caller's transaction ends.
        self.claim = (
            f"BEGIN NOT ATOMIC SELECT count(*) INTO @umavez_stands FROM {TABLE} WHERE digest = X%s; IF @umavez_stands"
            f" THEN SELECT 0, {now}, {READ} FROM {TABLE} WHERE digest = X%s{lock};"
            f" ELSE {self.insert}; END IF; END"
        )
        self.change = self._change(now, "fence", lock)
        self.take = self._change(now, FENCE, lock)
        self.read = f"SELECT {now}, {READ} FROM (SELECT 1) one LEFT JOIN {TABLE} ON digest = X%s"
        self.find = f"SELECT scope, operation_name, idempotency_key, {READ} FROM {TABLE} WHERE "

    def clock(self) -> Statement:
        """Ask for the store's time alone."""
        return Statement(f"SELECT {self.now}")

    @staticmethod
    def _change(now: str, fence: str, lock: str) -> str:
        # The fence comes back through a variable set by the very write: read afterwards, it could be a rival's.
        return (
            f"BEGIN NOT ATOMIC UPDATE {TABLE} SET fence = (@umavez_fence := {fence}),"
            f" updated_at = (@umavez_now := {now}), created_at = IF(%s, {now}, created_at),"
            f" stamp = %s, status = %s, attempt = %s, lease_until = {now} + %s, expires_at = {now} + %s,"
            " fingerprint = %s, process_instance_id = %s, activity_id = %s, outcome_kept = %s,"
            " result_data = %s, error_message = %s, progress = %s, evidence = %s"
            " WHERE digest = X%s AND stamp = %s;"
            " IF ROW_COUNT() = 1 THEN SELECT 1, @umavez_now, @umavez_fence;"
            f" ELSE SELECT 0, {now}, {READ} FROM (SELECT 1) one LEFT JOIN {TABLE} ON digest = X%s{lock};"
            " END IF; END"
        )


@lru_cache(maxsize=64)
def texts_at(offset: int, lock: str = "") -> Texts:
    """The texts for a clock offset, made once: it is zero but in tests."""
    return Texts(offset, lock)


def claiming(texts: Texts, draft: Draft, *, blind: bool) -> Statement:
    """Put `draft` where nothing stands. `blind` inserts without looking first."""
    digest, *names = key_of(draft.key)
    row = (digest.hex(), *names, *values_of(draft, draft.lease, draft.keep))
    if blind:
        return Statement(texts.insert, row)
    return Statement(texts.claim, (digest.hex(), digest.hex(), *row))


def changing(texts: Texts, expected: str, draft: Draft) -> Statement:
    """Put `draft` where `expected` stands."""
    digest = draft.key.digest.hex()
    values = (draft.fresh, *values_of(draft, draft.lease, draft.keep), digest, expected, digest)
    return Statement(texts.take if draft.claims else texts.change, values)


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
    current = _record(swap.draft.key, row)
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


def _record(key: Key, row: Sequence[Any]) -> Record | None:
    return None if row[0] is None else record_of(key, row)


def finding(texts: Texts, query: Query, now: int) -> Statement:
    """Look for records, oldest first."""
    where, values = conditions(query, now, "%s")
    return Statement(f"{texts.find}{where} ORDER BY created_at, digest LIMIT %s", (*values, query.limit))


def found(rows: Rows) -> list[Record]:
    """The answer to `finding`."""
    return [record_of(Key(row[0], row[1], row[2]), row[3:]) for row in rows]


def expired(texts: Texts, limit: int, older_than: int) -> Statement:
    """Choose and lock what may be swept, passing over rows that somebody is just changing."""
    return Statement(
        f"SELECT hex(digest) FROM {TABLE} WHERE expires_at <= {texts.now} - %s"
        " ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED",
        (older_than, limit),
    )


def deleting(texts: Texts, digests: Sequence[str], older_than: int) -> Statement:
    """Delete what `expired` chose; says its condition again, so that it can stand alone."""
    marks = ", ".join(["X%s"] * len(digests))
    text = f"DELETE FROM {TABLE} WHERE digest IN ({marks}) AND expires_at <= {texts.now} - %s RETURNING 1"
    return Statement(text, (*digests, older_than))
