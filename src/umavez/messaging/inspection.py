"""Looking at backlogs and deciding about what is dead. Flows, for the command line and consoles."""

# ruff: noqa: S608 - statements are joined from constants of the module; values always travel as parameters

from __future__ import annotations

from typing import Any, NamedTuple

from umavez.messaging.message import told
from umavez.messaging.tables.causes import THERE
from umavez.sql.connection import Dialect
from umavez.sql.flow import Ask, SqlFlow, Write, now_at

STATES = ("WAITING", "DONE", "DEAD", "DISCARDED")
LAG_COUNTED = 10_000
BLOCKED_COUNTED = 1_000
_BRIEF = "id, topic, aggregate, state, attempts, created_at, due_at, done_at, error"


class Entry(NamedTuple):
    """A message as it stands in a backlog. Instants are milliseconds since the epoch."""

    id: str
    topic: str
    aggregate: str | None
    state: str
    attempts: int
    created_at: int
    due_at: int
    done_at: int | None
    error: str | None
    body: str | None = None
    headers: str | None = None
    cause: str | None = None
    """The digest of the key whose attempt wrote it, in hexadecimal digits, where that is kept."""


class Lag(NamedTuple):
    """What is due and not yet handed on: how many, counted up to LAG_COUNTED, and for how many seconds the oldest."""

    waiting: int
    seconds: float


class Blocked(NamedTuple):
    """A dead message behind which later ones of its aggregate wait; `waiting` counts them up to BLOCKED_COUNTED."""

    id: str
    topic: str
    aggregate: str
    waiting: int


class Inspection:
    """Questions and decisions about the outbox, or about the deliveries of one subscriber."""

    def __init__(self, dialect: Dialect, subscriber: str | None = None) -> None:
        self._table = "umavez_outbox" if subscriber is None else "umavez_deliveries"
        self._own = "" if subscriber is None else " AND subscriber = ?"
        self._values: tuple[Any, ...] = () if subscriber is None else (subscriber,)
        self._now = now_at(dialect)
        self._caused = None if subscriber is not None else THERE[dialect]

    def entries(self, state: str | None = None, topic: str | None = None, limit: int = 100) -> SqlFlow[list[Entry]]:
        """The oldest that match, without their bodies."""
        where, values = f"1 = 1{self._own}", list(self._values)
        for column, value in (("state", state), ("topic", topic)):
            if value is not None:
                where += f" AND {column} = ?"
                values.append(value)
        rows = yield Ask(f"SELECT {_BRIEF} FROM {self._table} WHERE {where} ORDER BY seq LIMIT ?", (*values, limit))
        return [Entry(*row) for row in rows]

    def entry(self, name: str) -> SqlFlow[Entry | None]:
        """One message with its body, or None."""
        if not name.isascii():
            return None  # no message has such an id, and MariaDB would not compare it
        cause = ", cause" if (yield from self._keeps_causes()) else ""
        text = f"SELECT {_BRIEF}, body, headers{cause} FROM {self._table} WHERE id = ?{self._own}"
        rows = yield Ask(text, (name, *self._values))
        return Entry(*rows[0]) if rows else None

    def caused(self, digest: str, limit: int = 100) -> SqlFlow[list[Entry]]:
        """The messages that attempts at the key with this digest wrote, oldest first, without their bodies."""
        if not (yield from self._keeps_causes()):
            return []
        text = f"SELECT {_BRIEF}, NULL, NULL, cause FROM {self._table} WHERE cause = ? ORDER BY seq LIMIT ?"
        rows = yield Ask(text, (digest, limit))
        return [Entry(*row) for row in rows]

    def _keeps_causes(self) -> SqlFlow[bool]:
        """Whether the outbox has the column; deliveries have none."""
        return self._caused is not None and bool((yield Ask(self._caused))[0][0])

    def counts(self) -> SqlFlow[dict[str, int]]:
        """How many there are in each state."""
        rows = yield Ask(
            f"SELECT state, count(*) FROM {self._table} WHERE 1 = 1{self._own} GROUP BY state", self._values
        )
        return dict.fromkeys(STATES, 0) | {state: int(number) for state, number in rows}

    def lag(self) -> SqlFlow[Lag]:
        """How far behind the relay or the subscriber is."""
        due = f"FROM {self._table} WHERE state = 'WAITING' AND due_at <= {self._now}{self._own}"
        rows = yield Ask(
            f"SELECT count(*), coalesce({self._now} - min(due_at), 0) FROM (SELECT due_at {due}"
            f" ORDER BY due_at LIMIT {LAG_COUNTED}) d",
            self._values,
        )
        return Lag(int(rows[0][0]), int(rows[0][1]) / 1000)

    def blocked(self, limit: int = 20) -> SqlFlow[list[Blocked]]:
        """The oldest dead messages that others wait for, of the first `limit` aggregates that have a dead one."""
        rows = yield Ask(
            f"SELECT min(seq), aggregate FROM (SELECT seq, aggregate FROM {self._table} WHERE state = 'DEAD'"
            f" AND aggregate IS NOT NULL{self._own} ORDER BY seq LIMIT {BLOCKED_COUNTED}) d"
            " GROUP BY aggregate ORDER BY 1 LIMIT ?",
            (*self._values, limit),
        )
        found = []
        for seq, aggregate in rows:
            behind = (
                f"SELECT count(*) FROM (SELECT 1 AS one FROM {self._table} WHERE state = 'WAITING' AND aggregate = ?"
                f" AND seq > ?{self._own} LIMIT {BLOCKED_COUNTED}) w"
            )
            waiting = int((yield Ask(behind, (aggregate, seq, *self._values)))[0][0])
            if waiting:
                dead = yield Ask(f"SELECT id, topic FROM {self._table} WHERE seq = ?", (seq,))
                found += [Blocked(name, topic, aggregate, waiting) for name, topic in dead]
        return found

    def retry(self, name: str | None = None, by: str = "", reason: str = "") -> SqlFlow[int]:
        """Let a dead message, or all of them, wait for its turn again, with its attempts counted anew.

        Who said so, where somebody did, stands in the place of its error until there is another.
        """
        which, values = ("", ()) if name is None else (" AND id = ?", (name,))
        signed, words = (", error = ?", (told(f"Retried by {by}: {reason}"),)) if by else ("", ())
        text = (
            f"UPDATE {self._table} SET state = 'WAITING', attempts = 0, due_at = {self._now}, done_at = NULL{signed}"
            f" WHERE state = 'DEAD'{which}{self._own}"
        )
        written: int = yield Write(text, (*words, *values, *self._values))
        return written

    def discard(self, name: str, by: str, reason: str) -> SqlFlow[int]:
        """Give a dead message up for good, keeping who said so; later messages of its aggregate go on."""
        text = (
            f"UPDATE {self._table} SET state = 'DISCARDED', done_at = {self._now}, error = ?"
            f" WHERE state = 'DEAD' AND id = ?{self._own}"
        )
        written: int = yield Write(text, (told(f"Discarded by {by}: {reason}"), name, *self._values))
        return written
