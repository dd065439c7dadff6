"""Backlog: rows that wait, are claimed for a while under a token, and end as done or dead.

The outbox is one, and so are the deliveries of each subscriber. Every method is a flow (see umavez.sql.flow).
A claim writes a token and pushes `due_at` past the lease; whoever writes later names seq and token, so that one
whose claim has lapsed and been taken writes nothing. Rows are found by state, never by "seq above the last".
"""

# ruff: noqa: S608 - statements are joined from constants of the module; values always travel as parameters

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from umavez.messaging.message import told
from umavez.messaging.tables.claiming import MAX_BYTES, PAGES, Claimed, Claiming, among, waiting
from umavez.sql.connection import Dialect
from umavez.sql.flow import Ask, SqlFlow, Write, now_at


class Backlog:
    """The waiting rows of the outbox, or of one subscriber."""

    def __init__(self, dialect: Dialect, subscriber: str | None = None, *, offset: int = 0) -> None:
        self.dialect = dialect
        self.subscriber = subscriber
        self.table = "umavez_outbox" if subscriber is None else "umavez_deliveries"
        self._now = now_at(dialect, offset)
        self._claiming = Claiming(dialect, self.table, subscriber, self._now)

    def claim(
        self,
        limit: int,
        lease_ms: int,
        token: str,
        *,
        chain: int = 1,
        max_bytes: int = MAX_BYTES,
        pages: int = PAGES,
    ) -> SqlFlow[list[Claimed]]:
        """Take up to `limit` due rows for `lease_ms`; rows that others hold are passed over.

        Of one aggregate no row comes before the earlier unfinished ones, and at most `chain` come together. To be
        carried out in a transaction.
        """
        return self._claiming.claim(limit, lease_ms, token, chain, max_bytes, pages)

    def held(self, aggregates: Collection[str]) -> SqlFlow[set[str]]:
        """Those of `aggregates` that have an unfinished row; one that is dead counts."""
        own, owner = ("", ()) if self.subscriber is None else ("subscriber = ? AND ", (self.subscriber,))
        held: set[str] = set()
        for name in aggregates:
            rows = yield Ask(
                f"SELECT 1 FROM {self.table} WHERE {own}aggregate = ? AND state IN ('WAITING', 'DEAD') LIMIT 1",
                (*owner, name),
            )
            if rows:
                held.add(name)
        return held

    def done(self, seqs: Sequence[int], token: str) -> SqlFlow[int]:
        """Mark as done those of `seqs` that are still held under `token`; returns how many were."""
        return self._change(f"state = 'DONE', done_at = {self._now}, token = NULL, error = NULL", (), seqs, token)

    def back_off(self, seqs: Sequence[int], token: str, pause_ms: int, reason: str) -> SqlFlow[int]:
        """Let rows wait for `pause_ms`, keeping why."""
        change = f"token = NULL, due_at = {self._now} + ?, error = ?"
        return self._change(change, (pause_ms, told(reason)), seqs, token)

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
        return self._change(change, (told(reason),), seqs, token)

    def _change(self, change: str, values: Sequence[Any], seqs: Sequence[int], token: str) -> SqlFlow[int]:
        if not seqs:
            return 0
        some, which = among(self.dialect, seqs)
        text = f"UPDATE {self.table} SET {change} WHERE {some} AND token = ? AND {waiting(self.dialect)}"
        written: int = yield Write(text, (*values, *which, token))
        return written

    def clean(self, keep_ms: int, limit: int) -> SqlFlow[int]:
        """Delete up to `limit` rows that were done or discarded at least `keep_ms` ago; dead rows stay."""
        gone = 0
        for state in ("DONE", "DISCARDED"):
            if gone < limit:
                gone += yield from self._cleaned(f"state = '{state}'", keep_ms, limit - gone)
        return gone

    def _cleaned(self, over: str, keep_ms: int, limit: int) -> SqlFlow[int]:
        old = f"SELECT seq FROM {self.table} WHERE {over} AND done_at <= {self._now} - ? ORDER BY done_at LIMIT ?"
        if self.dialect is not Dialect.MARIADB:
            skip = " FOR UPDATE SKIP LOCKED" if self.dialect is Dialect.POSTGRES else ""
            gone: int = yield Write(f"DELETE FROM {self.table} WHERE seq IN ({old}{skip})", (keep_ms, limit))
            return gone
        # Found without a lock, then locked by primary key in its order, as every mark does: a DELETE by the index of
        # done rows would lock the two the other way round and deadlock with a mark.
        found = yield Ask(old, (keep_ms, limit))
        locked = yield from self._locked(over, sorted(seq for (seq,) in found))
        if not locked:
            return 0
        some, which = among(self.dialect, locked)
        gone = yield Write(f"DELETE FROM {self.table} WHERE {some}", which)
        return gone

    def _locked(self, over: str, seqs: Sequence[int]) -> SqlFlow[list[int]]:
        """Those of `seqs` that are over and that nobody else has locked, locked."""
        if not seqs:
            return []
        some, which = among(self.dialect, seqs)
        rows = yield Ask(
            f"SELECT seq FROM {self.table} FORCE INDEX (PRIMARY) WHERE {some} AND {over}"
            " ORDER BY seq FOR UPDATE SKIP LOCKED",
            which,
        )
        return [seq for (seq,) in rows]
