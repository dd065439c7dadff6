"""Limiter: so many mails per second over all workers, kept in the database; slower for all when the far side asks."""

from __future__ import annotations

import math

from umavez_systems.database import Connection, Database, Row
from umavez_systems.mailing.database import Dialect

SLOWEST = 1 / 64
MEND_MS = 10_000
REST_MS = 5_000
LONGEST_REST_MS = 3_600_000


class Limiter:
    """Hands out moments. Workers that ask together are served one after the other, by the database's clock."""

    def __init__(self, database: Database, rate: float, name: str = "mailing") -> None:
        self._database = database
        self._rate = rate
        self._name = name
        dialect = Dialect(database)
        now = dialect.now_ms
        self._ensure = f"INSERT INTO mailing_limits (nome, livre_em) VALUES (?, {now}) ON CONFLICT (nome) DO NOTHING"  # noqa: S608  # constants only
        self._look = f"SELECT livre_em, fator, mudou_em, {now} AS now FROM mailing_limits WHERE nome = ?"  # noqa: S608  # constants only
        self._hold = self._look + dialect.hold

    def size(self, group: int) -> int:
        """How many mails to take at once: at most what goes out in a second."""
        return group if self._rate <= 0 else max(1, min(group, int(self._rate)))

    def reserve(self, many: int, within: float = math.inf) -> float:
        """Seconds to wait before `many` mails may go. More than `within`: nothing was reserved."""
        if self._rate <= 0:
            with self._database.statements() as connection:
                row = connection.row(self._look, (self._name,))
            return 0.0 if row is None else max(0.0, (row["livre_em"] - row["now"]) / 1000)
        with self._database.transaction() as connection:
            row = self._held(connection)
            begin = max(row["livre_em"], row["now"])
            factor, changed = row["fator"], row["mudou_em"]
            if factor < 1 and row["now"] - changed >= MEND_MS:
                # It grows back by a tenth every few seconds without a new complaint.
                factor, changed = min(1.0, factor * 1.1), row["now"]
            wait = max(0.0, float(begin - row["now"]) / 1000)
            free = begin + int(many * 1000 / (self._rate * factor)) if wait <= within else row["livre_em"]
            self._write(connection, free, factor, changed)
            return wait

    @property
    def reserves(self) -> bool:
        """Whether a moment that was handed out is lost when nobody uses it."""
        return self._rate > 0

    def slow_down(self, asked: float = 0.0) -> None:
        """The far side asked for less, perhaps for so many seconds: everybody rests, then goes at half the speed.

        Where no speed is set, each complaint that follows soon is a longer rest.
        """
        with self._database.transaction() as connection:
            row = self._held(connection)
            factor = row["fator"]
            if not self.reserves:
                factor = min(1.0, factor * 1.1 ** min(100, (row["now"] - row["mudou_em"]) // MEND_MS))
            rest = REST_MS if self.reserves else int(REST_MS / factor)
            rest = max(rest, min(LONGEST_REST_MS, int(asked * 1000)))
            self._write(connection, max(row["livre_em"], row["now"] + rest), max(SLOWEST, factor / 2), row["now"])

    def _held(self, connection: Connection) -> Row:
        connection.rows(self._ensure, (self._name,))
        return connection.rows(self._hold, (self._name,))[0]

    def _write(self, connection: Connection, free: int, factor: float, changed: int) -> None:
        text = "UPDATE mailing_limits SET livre_em = ?, fator = ?, mudou_em = ? WHERE nome = ?"
        connection.rows(text, (free, factor, changed, self._name))
