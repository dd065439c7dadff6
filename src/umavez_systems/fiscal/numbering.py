"""Numbers of a series: the engine's gapless sequences, in the caller's transaction, beside the seed's table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from umavez.sequences import Range, Sequences
from umavez_systems.database import Connection, Duplicate, Row
from umavez_systems.fiscal import database as tables
from umavez_systems.fiscal.atos.governor import TODOS
from umavez_systems.problems import Problem

LAST_NUMBER = 999_999_999


class Dado(NamedTuple):
    """A number, the database's clock when it was given, and for how many milliseconds its taxpayer must keep quiet."""

    numero: int
    agora: int
    silencio: int


class ChaveUsada(Duplicate):
    """The idempotency key has a document already: no number was taken."""


class Numeracao:
    """Numbers of a series, without gaps, in the caller's transaction (seed 004 §9.2)."""

    def __init__(self, dialect: tables.Dialect) -> None:
        self._dialect = dialect
        self._sequences = Sequences()

    def proximo(self, connection: Connection, org_id: str, modelo: str, serie: int) -> int:
        """The next number; a rollback gives it back. Raises a 409 problem while the series is blocked."""
        return self.dado(connection, org_id, modelo, serie).numero

    def dado(self, connection: Connection, org_id: str, modelo: str, serie: int, chave: str | None = None) -> Dado:
        """The same, with the moment in which it was given. Raises ChaveUsada where the key has a document already."""
        row = self._taken(connection, org_id, modelo, serie, chave)
        if row is None and chave is not None and connection.row(tables.HAS_KEY, (chave,)) is not None:
            raise ChaveUsada(chave)
        if row is None:
            self.abrir(connection, org_id, modelo, serie, 1)
            row = self._taken(connection, org_id, modelo, serie, chave)
        if row is None or row["bloqueado"]:
            raise Problem(409, "serie-bloqueada", "Série bloqueada", f"A série {serie} ({modelo}) está bloqueada.")
        number = row["number"] or self._sequences.next_number(connection.raw, org_id, _series(modelo, serie))
        if number > LAST_NUMBER:
            raise Problem(409, "serie-esgotada", "Série esgotada", f"A série {serie} acabou; use outra.")
        if number != row["ultimo_numero"]:
            # The sequence went past a blocked range: it leads.
            sql = "UPDATE faixas_numeracao SET ultimo_numero = ? WHERE org_id = ? AND modelo = ? AND serie = ?"
            connection.rows(sql, (number, org_id, modelo, serie))
        return Dado(number, int(row["agora"]), max(0, int(row["ate"] or 0) - int(row["agora"])))

    def _taken(self, connection: Connection, org_id: str, modelo: str, serie: int, chave: str | None) -> Row | None:
        """The series' row counted on and, where one statement can do both, the number."""
        if self._dialect.one_statement:
            series = _series(modelo, serie)
            return self._dialect.number_for_key(connection, org_id, modelo, serie, TODOS, chave, series)
        row = self._dialect.next_in_range(connection, org_id, modelo, serie, TODOS)
        return None if row is None else {**row, "number": None}

    def reter(self, connection: Connection, org_id: str, modelo: str, series: Iterable[int]) -> None:
        """Hold several series until the transaction ends, always in the same order: two that want the same ones
        wait for each other in turn, and never both at once."""
        for serie in sorted(set(series)):
            if self._dialect.locked_range(connection, org_id, modelo, serie) is None:
                self.abrir(connection, org_id, modelo, serie, 1)
                self._dialect.locked_range(connection, org_id, modelo, serie)

    def abrir(self, connection: Connection, org_id: str, modelo: str, serie: int, primeiro: int) -> bool:
        """Begin a series at a number; False if it has begun already."""
        sql = (
            "INSERT INTO faixas_numeracao (org_id, modelo, serie, primeiro_numero, ultimo_numero, bloqueado)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING serie"
        )
        made = connection.row(sql, (org_id, modelo, serie, primeiro, primeiro - 1, False))
        self._sequences.define(connection.raw, org_id, _series(modelo, serie), ranges=[Range(primeiro)])
        return made is not None

    def anular(self, connection: Connection, act: Row, modelo: str) -> None:
        """Keep that a voided range's numbers will not be used, and why."""
        series = _series(modelo, act["serie"])
        for number in range(act["primeiro"], act["ultimo"] + 1):
            self._sequences.void(connection.raw, act["org_id"], series, number, by="inutilização", reason=act["texto"])

    def anulados(self, connection: Connection, org_id: str, modelo: str, serie: int) -> list[int]:
        """The voided numbers of a series."""
        return [voided.number for voided in self._sequences.voided(connection.raw, org_id, _series(modelo, serie))]


def _series(modelo: str, serie: int) -> str:
    return f"{modelo}/{serie}"
