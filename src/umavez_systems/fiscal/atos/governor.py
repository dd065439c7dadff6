"""The governor: what all workers together may ask of an authority and send again, counted in the database.

Asking too often blocks the taxpayer (656), and so does sending the same thing again and again: both are counted before
they leave.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from umavez_systems.database import Connection, Database
from umavez_systems.fiscal.database import Dialect

HOUR = 3_600_000
TODOS = "*"
"""The row of a taxpayer's block."""
STATUS = "status"
"""Begins the row of an authoriser's status, one for each mode of emission."""
ENVIO = "envio "
"""Begins the row of an act's repeated sends."""
_TAKE = (
    "INSERT INTO fiscal_consumo (org_id, alvo, momentos, bloqueado_ate) VALUES (?, ?, '[]', 0)"
    " ON CONFLICT (org_id, alvo) DO UPDATE SET bloqueado_ate = fiscal_consumo.bloqueado_ate"
    " RETURNING momentos, bloqueado_ate"
)
_KEEP = "UPDATE fiscal_consumo SET momentos = ? WHERE org_id = ? AND alvo = ?"
_BLOCK = (
    "INSERT INTO fiscal_consumo (org_id, alvo, momentos, bloqueado_ate) VALUES (?, ?, '[]', ?)"
    " ON CONFLICT (org_id, alvo) DO UPDATE SET bloqueado_ate = excluded.bloqueado_ate"
)


@dataclass(frozen=True, slots=True)
class Limites:
    """How often: questions about one key and repeated sends of one act in an hour; milliseconds between two looks at
    a service's status. Twenty equal refusals of an event block the taxpayer, thirty of a note."""

    por_chave: int = 10
    por_nota_de_servico: int = 60
    """SEFIN and São Paulo tell no limit; this is ours."""
    por_ato: int = 15
    entre_status: int = 180_000
    bloqueio: int = HOUR
    hora: int = HOUR
    folga: int = 60_000
    """Counted here before it leaves, a question arrives later: the first of an hour perhaps by its whole time-out, the
    last at once. So our hour is longer than the authority's by that much."""

    @property
    def janela(self) -> int:
        """Milliseconds within which the bounds by the hour hold."""
        return self.hora + self.folga


class Governador:
    """Counts questions and remembers blocks, for every worker on the same database."""

    def __init__(self, database: Database, limites: Limites | None = None) -> None:
        self._database = database
        self._dialect = Dialect(database)
        self.limites = limites or Limites()

    def agora(self, connection: Connection, org_id: str) -> tuple[int, int]:
        """The database's clock, and the milliseconds that a taxpayer must still keep quiet: one round trip for both."""
        now, until = self._dialect.now_and_block(connection, org_id, TODOS)
        return now, max(0, until - now)

    def bloqueado(self, connection: Connection, org_id: str) -> int:
        """Milliseconds that a taxpayer must still keep quiet; 0 when it need not."""
        return self.agora(connection, org_id)[1]

    def pedir(self, org_id: str, alvo: str, *, de_servico: bool = False) -> int:
        """Take one question about `alvo`: 0, or the milliseconds until there is one. Commits by itself."""
        often = self.limites.por_nota_de_servico if de_servico else self.limites.por_chave
        with self._database.transaction() as connection:
            blocked = self.bloqueado(connection, org_id)
            if blocked:
                return blocked
            if alvo.startswith(STATUS):
                return self._take(connection, org_id, alvo, 1, self.limites.entre_status)
            return self._take(connection, org_id, alvo, often, self.limites.janela)

    def repetir(self, connection: Connection, org_id: str, nome: str) -> int:
        """Take one repeated send of an act, in the caller's transaction: 0, or the milliseconds until there is one."""
        return self._take(connection, org_id, f"{ENVIO}{nome}", self.limites.por_ato, self.limites.janela)

    def adiar(self, connection: Connection, org_id: str, nome: str, espera_ms: int) -> None:
        """The authority said "not now" to an act: nobody sends it again sooner."""
        until = self._dialect.now(connection) + espera_ms
        connection.rows(_BLOCK, (org_id, f"{ENVIO}{nome}", until))

    def _take(self, connection: Connection, org_id: str, alvo: str, most: int, window: int) -> int:
        # The upsert holds this row until the end: two workers cannot both take the last one.
        row = connection.row(_TAKE, (org_id, alvo)) or {"momentos": "[]", "bloqueado_ate": 0}
        now = self._dialect.now(connection)
        if row["bloqueado_ate"] > now:
            return int(row["bloqueado_ate"]) - now
        taken = [at for at in json.loads(row["momentos"]) if at > now - window]
        if len(taken) >= most:
            return int(taken[-most]) + window - now + 1
        connection.rows(_KEEP, (json.dumps([*taken, now]), org_id, alvo))
        return 0

    def devolver(self, org_id: str, alvo: str) -> None:
        """Give the last question back: it never left this machine, so the authority did not count it."""
        with self._database.transaction() as connection:
            self._give(connection, org_id, alvo)

    def devolver_envio(self, connection: Connection, org_id: str, nome: str) -> None:
        """Give the last send of an act back, for the same reason; in the caller's transaction."""
        self._give(connection, org_id, f"{ENVIO}{nome}")

    def _give(self, connection: Connection, org_id: str, alvo: str) -> None:
        row = connection.row(_TAKE, (org_id, alvo)) or {"momentos": "[]"}
        connection.rows(_KEEP, (json.dumps(json.loads(row["momentos"])[:-1]), org_id, alvo))

    def bloquear(self, org_id: str) -> None:
        """The authority said that we asked too often: nobody asks for an hour."""
        with self._database.transaction() as connection:
            until = self._dialect.now(connection) + self.limites.bloqueio
            connection.rows(_BLOCK, (org_id, TODOS, until))
