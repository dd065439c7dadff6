"""The statements of a row lease: what a table must have, and how each dialect says it. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umavez.errors import ConfigurationError
from umavez.sql.connection import Dialect

Statement = tuple[str, tuple[Any, ...]]

IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,47}")
"""Names cannot travel as parameters, so only these are let into a statement."""

_NOW = {
    Dialect.SQLITE: "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
    # Not now(): inside a long transaction that is the time it began, and a fresh claim would look stale.
    Dialect.POSTGRES: "clock_timestamp()",
    Dialect.MARIADB: "UTC_TIMESTAMP(6)",
}
_EDGE = {
    Dialect.SQLITE: "strftime('%Y-%m-%d %H:%M:%f000', 'now', ?)",
    Dialect.POSTGRES: "clock_timestamp() - ? * interval '1 microsecond'",
    Dialect.MARIADB: "UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND",
}


@dataclass(frozen=True, slots=True)
class LeasedTable:
    """A caller's table whose rows are worked on by one worker at a time (seed 002, level 3).

    `epoch` is an integer column that every claim raises and every later write must match. `last_attempt` is
    timestamptz on PostgreSQL, DATETIME(6) in UTC on MariaDB and text on SQLite. A row in `busy` whose
    `last_attempt` is older than `stale` seconds, by the database's clock, may be taken over, or be set back to
    `recovered` by a recovery.
    """

    table: str
    id: str = "id"
    status: str = "status"
    last_attempt: str = "last_attempt"
    epoch: str = "epoch"
    free: tuple[str, ...] = ("PENDING", "QUEUED", "FAILED")
    busy: str = "PROCESSING"
    finished: str = "SENT"
    failed: str = "FAILED"
    recovered: str = "PENDING"
    stale: float = 30.0

    def __post_init__(self) -> None:
        for name in (self.table, self.id, self.status, self.last_attempt, self.epoch):
            checked(name)
        if not self.free or self.busy in self.free or self.stale <= 0:
            raise ConfigurationError("A row lease needs free states without the busy one, and stale above 0 seconds.")

    def claiming(self, row: Any, dialect: Dialect) -> Statement:
        """Claims the row if it is free or stale, and raises its epoch; one statement, so that one worker wins."""
        raised = f"COALESCE({self.epoch}, 0) + 1"
        if dialect is Dialect.MARIADB:
            # It has no UPDATE … RETURNING; this keeps the new epoch for this connection alone.
            raised = f"LAST_INSERT_ID({raised})"
        free = ", ".join("?" for _ in self.free)
        text = (
            f"UPDATE {self.table} SET {self.status} = ?,"  # noqa: S608  # names are checked, values travel as parameters
            f" {self.last_attempt} = {_NOW[dialect]}, {self.epoch} = {raised}"
            f" WHERE {self.id} = ? AND ({self.status} IN ({free}) OR ({self.status} = ?"
            f" AND ({self.last_attempt} IS NULL OR {self.last_attempt} < {_EDGE[dialect]})))"
        )
        if dialect is not Dialect.MARIADB:
            text += f" RETURNING {self.epoch}"
        return text, (self.busy, row, *self.free, self.busy, self._stale(dialect))

    def _stale(self, dialect: Dialect) -> Any:
        return f"-{self.stale:.3f} seconds" if dialect is Dialect.SQLITE else int(self.stale * 1_000_000)

    def guarded(self, row: Any, epoch: int) -> Statement:
        """The condition that only the holder of `epoch` meets, to put after WHERE in statements of one's own."""
        return f"{self.id} = ? AND {self.status} = ? AND {self.epoch} = ?", (row, self.busy, epoch)

    def writing(self, row: Any, epoch: int, columns: Mapping[str, Any], dialect: Dialect) -> Statement:
        """Sets `columns` if the row is still held under `epoch`, and renews it."""
        names = [checked(name) for name in columns]
        if {self.id, self.epoch, self.last_attempt} & set(names):
            raise ConfigurationError("A guarded write does not set the row's id, epoch or time of attempt.")
        text, values = self.guarded(row, epoch)
        settings = "".join(f"{name} = ?, " for name in names)
        written = f"UPDATE {self.table} SET {settings}{self.last_attempt} = {_NOW[dialect]} WHERE {text}"  # noqa: S608  # as above
        return written, (*columns.values(), *values)

    def abandoned(self, limit: int, dialect: Dialect) -> Statement:
        """Finds rows whose holder has been silent for `stale` seconds, and locks those that nobody else looks at."""
        skip = "" if dialect is Dialect.SQLITE else " FOR UPDATE SKIP LOCKED"
        text = (
            f"SELECT {self.id} FROM {self.table} WHERE {self.status} = ?"  # noqa: S608  # as above
            f" AND ({self.last_attempt} IS NULL OR {self.last_attempt} < {_EDGE[dialect]}) LIMIT ?{skip}"
        )
        return text, (self.busy, self._stale(dialect), limit)

    def recovering(self, row: Any, dialect: Dialect) -> Statement:
        """Takes the row from a silent holder; staleness is judged again, for it may have woken up meanwhile."""
        text = (
            f"UPDATE {self.table} SET {self.status} = ?, {self.last_attempt} = NULL,"  # noqa: S608  # as above
            f" {self.epoch} = COALESCE({self.epoch}, 0) + 1 WHERE {self.id} = ? AND {self.status} = ?"
            f" AND ({self.last_attempt} IS NULL OR {self.last_attempt} < {_EDGE[dialect]})"
        )
        return text, (self.recovered, row, self.busy, self._stale(dialect))

    def holding(self, row: Any, epoch: int) -> Statement:
        """Finds the row, as it stands now, if it is still held under `epoch`.

        A locking read: under MariaDB's REPEATABLE READ a plain one sees the row as it was when the transaction first
        read, and would tell a worker that slept through a takeover that it still holds it.
        """
        text, values = self.guarded(row, epoch)
        return f"SELECT 1 FROM {self.table} WHERE {text} FOR UPDATE", values  # noqa: S608  # as above


def checked(name: str) -> str:
    """`name`, if it may stand in a statement. Raises ConfigurationError."""
    if not IDENTIFIER.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is not a name for a table or column here; use a-z, 0-9 and _, at most 48 characters."
        )
    return name
