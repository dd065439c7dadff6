"""Which rows of a backlog may be claimed now, and taking them.

Found without locks first: the oldest due rows, and the front of each aggregate among them. That a row is the first
unfinished one of its aggregate stays true until it is finished itself, so it need not be locked to be known. Then
the chosen rows are locked by primary key, passing over what others have locked, and judged again as they stand.
"""

# ruff: noqa: S608 - statements are joined from constants of the module; values always travel as parameters

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from umavez.messaging.message import UNREADABLE, Message, message_of
from umavez.sql.connection import Dialect
from umavez.sql.flow import Ask, SqlFlow, Write

COLUMNS = "seq, id, topic, body, headers, aggregate, attempts"
MAX_BYTES = 8 * 1024 * 1024
"""Of the bodies of one claim; a single larger message is claimed alone."""
PAGES = 10
"""Windows looked through in one claim, when rows that wait for others fill the first. The next claim goes on there."""
BRANCHES = 50
"""Aggregates asked about in one statement."""

_SIZE = {
    Dialect.SQLITE: "length(CAST(body AS BLOB))",  # of a text it would be characters, and only those before a NUL
    Dialect.POSTGRES: "octet_length(body)",
    Dialect.MARIADB: "length(body)",
}


class Claimed(NamedTuple):
    """A row that is ours until its lease lapses. `attempts` counts this one; `broken` says why it cannot be read."""

    seq: int
    message: Message
    attempts: int
    broken: str = ""


class Candidate(NamedTuple):
    """A due row, before it is locked."""

    due_at: int
    seq: int
    aggregate: str | None
    size: int


class Claiming:
    """Claims rows of one table, for one subscriber or the outbox; remembers how far it has looked."""

    def __init__(self, dialect: Dialect, table: str, subscriber: str | None, now: str) -> None:
        self._dialect = dialect
        self._table = table
        self._now = now
        self._own = "" if subscriber is None else "subscriber = ? AND "
        self._owner: tuple[str, ...] = () if subscriber is None else (subscriber,)
        self._seen = (0, 0)

    def claim(
        self, limit: int, lease_ms: int, token: str, chain: int, max_bytes: int, pages: int
    ) -> SqlFlow[list[Claimed]]:
        """Take up to `limit` rows for `lease_ms`, of one aggregate at most `chain`, in order and without a gap."""
        for _ in range(pages):
            window = yield from self._window(max(2 * limit, 100))
            fronts = yield from self._fronts(window, limit, chain)
            chosen = _chosen(window, fronts, limit, max_bytes)
            ours = yield from self._taken(chosen, lease_ms, token)
            full = len(window) == max(2 * limit, 100)
            # What fills the window may all wait for something earlier, or be in others' hands: look behind it next.
            self._seen = window[-1][:2] if full and not ours else (0, 0)
            if ours or not full:
                return ours
        return []

    def _taken(self, chosen: Sequence[Sequence[int]], lease_ms: int, token: str) -> SqlFlow[list[Claimed]]:
        """Lock and claim what is still to be had of `chosen`."""
        seqs = sorted(seq for run in chosen for seq in run)
        if not seqs:
            return []
        if self._dialect is Dialect.POSTGRES and all(len(run) == 1 for run in chosen):
            return (yield from self._taken_at_once(seqs, lease_ms, token))
        hint = " FORCE INDEX (PRIMARY)" if self._dialect is Dialect.MARIADB else ""
        skip = "" if self._dialect is Dialect.SQLITE else " FOR UPDATE SKIP LOCKED"
        some, values = among(self._dialect, seqs)
        rows = yield Ask(
            f"SELECT {COLUMNS} FROM {self._table}{hint} WHERE {some} AND {waiting(self._dialect)}"
            f" AND due_at <= {self._now} ORDER BY seq{skip}",
            values,
        )
        ours = _unbroken(chosen, {int(row[0]) for row in rows})
        if ours:
            some, values = among(self._dialect, sorted(ours))
            yield Write(
                f"UPDATE {self._table} SET token = ?, due_at = {self._now} + ?, attempts = attempts + 1 WHERE {some}",
                (token, lease_ms, *values),
            )
        return [_claimed(row) for row in rows if int(row[0]) in ours]

    def _taken_at_once(self, seqs: Sequence[int], lease_ms: int, token: str) -> SqlFlow[list[Claimed]]:
        """The same in one statement, where no row waits for another one of them."""
        columns = ", ".join(f"ours.{name}" for name in COLUMNS.split(", "))
        rows = yield Ask(
            f"UPDATE {self._table} AS ours SET token = ?, due_at = {self._now} + ?, attempts = ours.attempts + 1"
            f" FROM (SELECT seq FROM {self._table} WHERE seq = ANY(?) AND {waiting(self._dialect)}"
            f" AND due_at <= {self._now} ORDER BY seq FOR UPDATE SKIP LOCKED) AS free WHERE ours.seq = free.seq"
            f" RETURNING {columns}",
            (token, lease_ms, seqs),
            alone=True,
        )
        return [_claimed((*row[:6], row[6] - 1)) for row in sorted(rows, key=lambda row: int(row[0]))]

    def _window(self, many: int) -> SqlFlow[list[Candidate]]:
        hint = f" FORCE INDEX ({self._table}_due)" if self._dialect is Dialect.MARIADB else ""
        due_at, seq = self._seen
        rows = yield Ask(
            f"SELECT due_at, seq, aggregate, {_SIZE[self._dialect]} FROM {self._table}{hint} WHERE {self._own}"
            f"state = 'WAITING' AND due_at <= {self._now} AND due_at >= ? AND (due_at > ? OR seq > ?)"
            " ORDER BY due_at, seq LIMIT ?",
            (*self._owner, due_at, due_at, seq, many),
            alone=True,
        )
        return [Candidate(*row) for row in rows]

    def _fronts(self, window: Sequence[Candidate], limit: int, chain: int) -> SqlFlow[dict[str, list[Candidate]]]:
        """The first unfinished rows of the aggregates in the window, as far as they are due without a gap."""
        names = list(dict.fromkeys(row.aggregate for row in window if row.aggregate is not None))
        free = sum(row.aggregate is None for row in window)
        length = min(chain, max(1, (limit - free) // len(names))) if names else 0
        fronts: dict[str, list[Candidate]] = {}
        for start in range(0, len(names), BRANCHES):
            if len(fronts) >= limit:
                break
            rows = yield self._asked(names[start : start + BRANCHES], length)
            fronts |= _runs(rows)
        return fronts

    def _asked(self, names: Sequence[str], length: int) -> Ask:
        columns = f"aggregate, seq, state, CASE WHEN due_at <= {self._now} THEN 1 ELSE 0 END AS due, due_at, "
        columns += f"{_SIZE[self._dialect]} AS size"
        branch = self._branch_by_range if self._dialect is Dialect.POSTGRES else self._branch
        branches: list[str] = []
        values: list[Any] = []
        # One index entry per state on MariaDB, one for both elsewhere: each branch reads no more than it returns.
        states = ("= 'WAITING'", "= 'DEAD'") if self._dialect is Dialect.MARIADB else ("IN ('WAITING', 'DEAD')",)
        for name in names:
            for state in states:
                text, given = branch(columns, state, name, length, f"f{len(branches)}")
                branches.append(text)
                values += given
        return Ask(" UNION ALL ".join(branches), values, alone=True)

    def _branch(self, columns: str, state: str, name: str, length: int, alias: str) -> tuple[str, Sequence[Any]]:
        hint = f" FORCE INDEX ({self._table}_aggregate)" if self._dialect is Dialect.MARIADB else ""
        text = (
            f"SELECT * FROM (SELECT {columns} FROM {self._table}{hint} WHERE {self._own}aggregate = ?"
            f" AND state {state} ORDER BY seq LIMIT {length}) {alias}"
        )
        return text, (*self._owner, name)

    def _branch_by_range(
        self, columns: str, state: str, name: str, length: int, alias: str
    ) -> tuple[str, Sequence[Any]]:
        """From where the aggregate begins, and only then whether it is the aggregate.

        Asked for equality, a PostgreSQL that has no statistics yet expects a handful of rows and sorts them all: a
        backlog of 100,000 that came at once drained at an eighth of the speed.
        """
        owner = "subscriber, " if self._owner else ""
        index = f"{owner}aggregate, seq"
        begin = ", ".join("?" * (len(self._owner) + 1))
        text = (
            f"SELECT aggregate, seq, state, due, due_at, size FROM (SELECT {owner}{columns} FROM {self._table}"
            f" WHERE ({index}) >= ({begin}, 0) AND aggregate IS NOT NULL AND state {state}"
            f" ORDER BY {index} LIMIT {length}) {alias} WHERE {self._own}aggregate = ?"
        )
        return text, (*self._owner, name, *self._owner, name)


def among(dialect: Dialect, seqs: Sequence[int]) -> tuple[str, Sequence[Any]]:
    """The condition that a row is one of `seqs`, and its values."""
    if dialect is Dialect.POSTGRES:
        return "seq = ANY(?)", (list(seqs),)
    return f"seq IN ({','.join('?' * len(seqs))})", seqs


def waiting(dialect: Dialect) -> str:
    """That rows which were found by their seq wait still.

    On PostgreSQL an expression, which no index knows: without statistics yet it would else go through all that waits,
    200 rows in 85 ms instead of 1 of a backlog of 40,000 that came at once.
    """
    return "state || '' = 'WAITING'" if dialect is Dialect.POSTGRES else "state = 'WAITING'"


def _runs(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[Candidate]]:
    """Rows of fronts by aggregate, each cut at the first that is dead, claimed or not yet due."""
    runs: dict[str, list[Candidate]] = {}
    ended: set[str] = set()
    for name, seq, state, due, due_at, size in sorted(rows):
        if state != "WAITING" or not due:
            ended.add(name)
        if name not in ended:
            runs.setdefault(name, []).append(Candidate(due_at, seq, name, size))
    return runs


def _chosen(
    window: Sequence[Candidate], fronts: dict[str, list[Candidate]], limit: int, max_bytes: int
) -> list[list[int]]:
    """Runs in the order in which their first rows became due, within both bounds."""
    chosen: list[list[int]] = []
    left, bytes_left = limit, max_bytes
    for row in window:
        run = [row] if row.aggregate is None else fronts.pop(row.aggregate, [])
        taken: list[int] = []
        for one in run[:left]:
            if bytes_left < one.size and bytes_left < max_bytes:
                return [*chosen, taken] if taken else chosen
            bytes_left -= one.size
            taken.append(one.seq)
        if taken:
            chosen.append(taken)
            left -= len(taken)
        if left <= 0:
            break
    return chosen


def _unbroken(chosen: Iterable[Sequence[int]], locked: set[int]) -> set[int]:
    """Of each run what comes before its first row that is not ours."""
    ours: set[int] = set()
    for run in chosen:
        for seq in run:
            if seq not in locked:
                break
            ours.add(seq)
    return ours


def _claimed(row: tuple[Any, ...]) -> Claimed:
    try:
        return Claimed(int(row[0]), message_of(row[1:6]), int(row[6]) + 1)
    except UNREADABLE as error:
        name, topic, body, _, aggregate = row[1:6]
        unread = Message(topic, body, name, aggregate=aggregate)
        return Claimed(int(row[0]), unread, int(row[6]) + 1, f"The row cannot be read: {error}")
