"""Backlog: rows that wait, are claimed for a while under a token, and end as done or dead.

The outbox is one, and so are the deliveries of each subscriber. Every method is a flow (see umavez.sql_flow).
A claim writes a token and pushes `due_at` past the lease; whoever writes later names seq and token, so that one
whose claim has lapsed and been taken writes nothing. Rows are found by state, never by "seq above the last".
"""

# ruff: noqa: S608 - statements are joined from constants of the module; values always travel as parameters

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from umavez.messaging.message import Message, message_of
from umavez.sql import Dialect
from umavez.sql_flow import Ask, SqlFlow, Write, now_at

COLUMNS = "seq, id, topic, body, headers, aggregate, attempts"
REASON_LENGTH = 2000


class Claimed(NamedTuple):
    """A row that is ours until its lease lapses. `attempts` counts this one."""

    seq: int
    message: Message
    attempts: int


class Backlog:
    """The waiting rows of the outbox, or of one subscriber."""

    def __init__(self, dialect: Dialect, subscriber: str | None = None, *, offset: int = 0) -> None:
        self.dialect = dialect
        self.subscriber = subscriber
        self.table = "umavez_outbox" if subscriber is None else "umavez_deliveries"
        self.one_statement = dialect is not Dialect.MARIADB
        """Whether a claim is a single statement; MariaDB's UPDATE returns nothing, so it needs a transaction."""
        self._own: tuple[str, ...] = () if subscriber is None else (subscriber,)
        self._now = now_at(dialect, offset)
        self._due = self._due_text()

    def _due_text(self) -> str:
        """The rows that may be claimed: due, and with no earlier unfinished row of the same aggregate."""
        own = "m.subscriber = ? AND " if self.subscriber is not None else ""
        same = "e.subscriber = m.subscriber AND " if self.subscriber is not None else ""
        skip = "" if self.dialect is Dialect.SQLITE else " FOR UPDATE SKIP LOCKED"
        if self.dialect is Dialect.POSTGRES:
            skip = " FOR UPDATE OF m SKIP LOCKED"
        columns = COLUMNS.replace("seq", "m.seq", 1) if self.dialect is Dialect.MARIADB else "m.seq"
        return (
            f"SELECT {columns} FROM {self.table} m WHERE {own}m.state = 'WAITING' AND m.due_at <= {self._now}"
            f" AND (m.aggregate IS NULL OR NOT EXISTS (SELECT 1 FROM {self.table} e WHERE {same}"
            " e.aggregate = m.aggregate AND e.aggregate IS NOT NULL AND e.state IN ('WAITING', 'DEAD')"
            f" AND e.seq < m.seq)) ORDER BY m.due_at, m.seq LIMIT ?{skip}"
        )

    def claim(self, limit: int, lease_ms: int, token: str) -> SqlFlow[list[Claimed]]:
        """Take up to `limit` due rows for `lease_ms`; rows that others hold are passed over."""
        setting = f"SET token = ?, due_at = {self._now} + ?, attempts = attempts + 1"
        if self.dialect is Dialect.MARIADB:
            rows = yield Ask(self._due, (*self._own, limit))
            if rows:
                seqs = [row[0] for row in rows]
                yield Write(f"UPDATE {self.table} {setting} WHERE seq IN ({_marks(seqs)})", (token, lease_ms, *seqs))
            return [_claimed(row, 1) for row in rows]
        if self.dialect is Dialect.POSTGRES:
            # A CTE as a fence: without it the planner may update more rows than the limit allows.
            text = (
                f"WITH due AS MATERIALIZED ({self._due}) UPDATE {self.table} t {setting} FROM due"
                f" WHERE t.seq = due.seq RETURNING {COLUMNS.replace('seq', 't.seq', 1)}"
            )
            rows = yield Ask(text, (*self._own, limit, token, lease_ms))
        else:
            text = f"UPDATE {self.table} {setting} WHERE seq IN ({self._due}) RETURNING {COLUMNS}"
            rows = yield Ask(text, (token, lease_ms, *self._own, limit))
        return sorted(_claimed(row) for row in rows)

    def done(self, seqs: Sequence[int], token: str) -> SqlFlow[int]:
        """Mark as done those of `seqs` that are still held under `token`; returns how many were."""
        return self._change(f"state = 'DONE', done_at = {self._now}, token = NULL, error = NULL", (), seqs, token)

    def back_off(self, seqs: Sequence[int], token: str, pause_ms: int, reason: str) -> SqlFlow[int]:
        """Let rows wait for `pause_ms`, keeping why."""
        change = f"token = NULL, due_at = {self._now} + ?, error = ?"
        return self._change(change, (pause_ms, reason[:REASON_LENGTH]), seqs, token)

    def release(self, seqs: Sequence[int], token: str, pause_ms: int = 0) -> SqlFlow[int]:
        """Give rows back as if they had not been claimed: what went wrong was not theirs."""
        change = f"token = NULL, due_at = {self._now} + ?, attempts = attempts - 1"
        return self._change(change, (pause_ms,), seqs, token)

    def renew(self, seqs: Sequence[int], token: str, lease_ms: int) -> SqlFlow[int]:
        """Extend the lease of rows whose work takes long."""
        return self._change(f"due_at = {self._now} + ?", (lease_ms,), seqs, token)

    def bury(self, seqs: Sequence[int], token: str, reason: str) -> SqlFlow[int]:
        """Give rows up as dead, keeping why; a person decides what becomes of them."""
        change = f"state = 'DEAD', token = NULL, done_at = {self._now}, error = ?"
        return self._change(change, (reason[:REASON_LENGTH],), seqs, token)

    def _change(self, change: str, values: Sequence[Any], seqs: Sequence[int], token: str) -> SqlFlow[int]:
        if not seqs:
            return 0
        some, which = self._among(seqs)
        text = f"UPDATE {self.table} SET {change} WHERE {some} AND token = ? AND state = 'WAITING'"
        written: int = yield Write(text, (*values, *which, token))
        return written

    def clean(self, keep_ms: int, limit: int) -> SqlFlow[int]:
        """Delete up to `limit` rows that were done or discarded at least `keep_ms` ago; dead rows stay."""
        old = f"state = 'DONE' AND done_at <= {self._now} - ? ORDER BY done_at LIMIT ?"
        if self.dialect is Dialect.MARIADB:
            gone: int = yield Write(f"DELETE FROM {self.table} WHERE {old}", (keep_ms, limit))
            return gone
        skip = " FOR UPDATE SKIP LOCKED" if self.dialect is Dialect.POSTGRES else ""
        text = f"DELETE FROM {self.table} WHERE seq IN (SELECT seq FROM {self.table} WHERE {old}{skip})"
        gone = yield Write(text, (keep_ms, limit))
        return gone

    def _among(self, seqs: Sequence[int]) -> tuple[str, Sequence[Any]]:
        if self.dialect is Dialect.POSTGRES:
            return "seq = ANY(?)", (list(seqs),)
        return f"seq IN ({_marks(seqs)})", seqs


def _claimed(row: tuple[Any, ...], more: int = 0) -> Claimed:
    return Claimed(int(row[0]), message_of(row[1:6]), int(row[6]) + more)


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))
