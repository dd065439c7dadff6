"""The books: what became of every number, what may be voided, which right is lost next, the proof of a document.

Also the round of work that leaves nothing open: the engine's reconciler first, then what is due and in no doubt.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from umavez import StoreError
from umavez_systems.database import Connection, Row
from umavez_systems.fiscal import database as tables
from umavez_systems.fiscal.atos.records import Cadeia, Registro, resumo_de
from umavez_systems.fiscal.atos.steps import Veredito
from umavez_systems.fiscal.cases import Caller, Fiscal
from umavez_systems.fiscal.domain import Acao, Estado, Tipo
from umavez_systems.fiscal.organizations import identidade
from umavez_systems.fiscal.rules import deadlines, proof
from umavez_systems.fiscal.rules.deadlines import BRASILIA, Pendencia, Situacao
from umavez_systems.fiscal.rules.identifiers import invalid
from umavez_systems.fiscal.rules.ledger import Livro, livro
from umavez_systems.fiscal.rules.plan import Devido, plano
from umavez_systems.problems import Problem

LOG = logging.getLogger("umavez.systems.fiscal")
LONGEST_RANGE = 1000
"""Numbers in one voiding."""
MOST_NUMBERS = 20_000
"""Numbers of a series that its ledger shows, the newest."""
WINDOW = 10
"""Times the budget: how much of what is due the plan chooses from."""
VOIDABLE = (Estado.RASCUNHO, Estado.REJEITADO, Estado.INDETERMINADO)
OF_RANGE = (
    "SELECT id, numero, estado, enviado_em, ausente_em, id_idempotencia, inutilizacao FROM documentos_fiscais"
    " WHERE org_id = ? AND modelo = ? AND serie = ? AND numero BETWEEN ? AND ? ORDER BY numero"
)


@dataclass(frozen=True, slots=True)
class Faixa:
    """A series and its ledger."""

    organizacao: str
    modelo: str
    serie: int
    primeiro: int
    ultimo: int
    bloqueado: bool
    livro: Livro


class Livros:
    """Looks over what Fiscal keeps, and closes what it can."""

    def __init__(self, fiscal: Fiscal) -> None:
        self._fiscal = fiscal
        self._database = fiscal.database
        self._dialect = tables.Dialect(fiscal.database)

    def numeracao(self, principal: str, organizacao: str | None = None) -> list[Faixa]:
        """Every series of a principal, each number explained."""
        asked = "SELECT f.* FROM faixas_numeracao f JOIN fiscal_organizacoes o ON o.id = f.org_id WHERE o.principal = ?"
        values: list[Any] = [principal]
        if organizacao is not None:
            asked += " AND o.id = ?"
            values.append(identidade(principal, organizacao))
        with self._database.transaction() as connection:
            rows = connection.rows(f"{asked} ORDER BY f.org_id, f.modelo, f.serie", values)
            return [self._series(connection, row) for row in rows]

    def _series(self, connection: Connection, row: Row) -> Faixa:
        first = max(row["primeiro_numero"], row["ultimo_numero"] - MOST_NUMBERS + 1)
        place = (row["org_id"], row["modelo"], row["serie"])
        documents = connection.rows(OF_RANGE, (*place, first, row["ultimo_numero"]))
        states = {found["numero"]: Estado(found["estado"]) for found in documents}
        absent = {found["numero"] for found in documents if _absent(found)}
        voided = self._fiscal.atos.numeracao.anulados(connection, *place)
        book = livro(first, row["ultimo_numero"], states, absent, voided, anula=row["modelo"] in ("55", "65"))
        name = row["org_id"].partition("/")[2]
        return Faixa(name, *place[1:], row["primeiro_numero"], row["ultimo_numero"], bool(row["bloqueado"]), book)

    def inutilizar(
        self, caller: Caller, organizacao: str, tipo: Tipo, serie: int, primeiro: int, ultimo: int, why: str
    ) -> tuple[Row, bool]:
        """Void numbers that nobody used, once their absence is proven. The act's row, and whether it was there."""
        org_id = self._fiscal.organizacoes.linha(caller.principal, organizacao)["id"]
        if not 1 <= primeiro <= ultimo or ultimo - primeiro >= LONGEST_RANGE:
            raise invalid(f"primeiro e ultimo: uma faixa em ordem, com até {LONGEST_RANGE} números.")
        self._prove_absence(org_id, tipo, serie, primeiro, ultimo)
        with self._database.transaction() as connection:
            act, there = self._stored(connection, org_id, tipo, serie, primeiro, ultimo, why)
        self._fiscal.atos.cumprir(Acao.INUTILIZAR, org_id, act["nome"])
        with self._database.statements() as connection:
            return connection.row(tables.ACT, (org_id, act["nome"])) or act, there

    def _prove_absence(self, org_id: str, tipo: Tipo, serie: int, primeiro: int, ultimo: int) -> None:
        """Ask the authority about each number of the range that may have reached it, as long as a caller is patient.

        What is left without a proof is asked about when the caller repeats; what is proven by then stays so.
        """
        ends = time.monotonic() + self._fiscal.atos.termos.patience
        with self._database.statements() as connection:
            rows = connection.rows(OF_RANGE, (org_id, tipo.modelo, serie, primeiro, ultimo))
        for row in rows:
            if time.monotonic() > ends:
                return
            if Estado(row["estado"]) in VOIDABLE and not _absent(row):
                self._fiscal.atos.perguntar(Acao.EMITIR, org_id, row["id_idempotencia"])

    def _stored(
        self, connection: Connection, org_id: str, tipo: Tipo, serie: int, primeiro: int, ultimo: int, why: str
    ) -> tuple[Row, bool]:
        now = self._dialect.now(connection)
        authority = self._fiscal.organizacoes.autoridade(org_id, tipo)
        made = [authority.montar_inutilizacao(tipo, year, serie, primeiro, ultimo, why) for year in anos(now)]
        held = [self._dialect.locked_act(connection, org_id, ato.nome) for ato in made]
        for there in held:
            if there is not None and there["estado"] in ("PENDENTE", "FEITO"):
                return there, True
        ato, act = made[0], held[0]
        rows = self._voidable(connection, org_id, tipo, serie, primeiro, ultimo)
        soon = now + int(self._fiscal.atos.termos.settle * 1000)
        if act is None:
            head = (org_id, ato.nome, Acao.INUTILIZAR.value, None, "PENDENTE", ato.xml, why, 1, tipo.value)
            act = connection.row(tables.INSERT_ACT, (*head, serie, primeiro, ultimo, None, None, None, soon, now))
        else:
            tables.change_act(connection, act, {"estado": "PENDENTE", "xml": ato.xml, "texto": why, "proximo_em": soon})
            self._fiscal.atos.reabrir(connection, Acao.INUTILIZAR, org_id, ato.nome)
        if act is None:
            raise invalid("O pedido não pôde ser guardado.")
        chain = Cadeia.continuada(connection, ato.nome, now)
        chain.anotar("bytes", {"id": ato.nome, "sha256": resumo_de(ato.xml)})
        chain.gravar(connection)
        for row in rows:
            record = Registro(connection, row)
            record.cadeia.anotar("inutilizacao", {"id": ato.nome})
            record.notar(inutilizacao=ato.nome)
            record.gravar()
        return act, False

    def _voidable(
        self, connection: Connection, org_id: str, tipo: Tipo, serie: int, primeiro: int, ultimo: int
    ) -> list[Row]:
        """The range's documents, held. Raises 409 problems unless every number may be voided."""
        series = self._dialect.locked_range(connection, org_id, tipo.modelo, serie)
        if series is None or ultimo > series["ultimo_numero"]:
            detail = "Só números já dados podem ser inutilizados; os outros ainda serão usados."
            raise Problem(409, "numero-nao-dado", "Número ainda não dado", detail)
        held: list[Row] = []
        for found in connection.rows(OF_RANGE, (org_id, tipo.modelo, serie, primeiro, ultimo)):
            row = self._dialect.locked(connection, found["id"])
            if row is None or Estado(row["estado"]) not in VOIDABLE or row["inutilizacao"] is not None:
                raise _used(found["numero"], found["estado"])
            if not _absent(row):
                raise _used(found["numero"], "sem prova de ausência na autoridade")
            held.append(row)
        return held

    def pendencias(self, principal: str, limite: int = 500) -> tuple[list[Pendencia], int]:
        """What is open, the right that is lost first in front; and the time they are measured by."""
        with self._database.statements() as connection:
            rows = tables.open_documents(connection, principal, limite)
            now = self._dialect.now(connection)
        return deadlines.pendencias([_situation(row) for row in rows]), now

    def prova(self, principal: str, number: str) -> dict[str, Any]:
        """A document's chain with what is wrong with it: an export that anybody can check offline."""
        row = self._fiscal.documento(principal, number)
        with self._database.statements() as connection:
            entries = tables.proofs(connection, row["id"])
        return {
            "documento": row["id"],
            "id_idempotencia": row["id_idempotencia"],
            "chave_acesso": row["chave_acesso"],
            "cabeca": row["prova_resumo"],
            "falhas": proof.falhas(entries, row["prova_resumo"]),
            "entradas": [asdict(entry) for entry in entries],
        }

    def varrer(self, limite: int = 100) -> int:
        """One round: ask about what nobody knows, then carry what is due and in no doubt. How many were moved.

        `limite` questions and sends: the engine's first, which takes the organisations in turn, then by plan, to which
        a quarter is left in any case.
        """
        asked = int(self._fiscal.atos.conciliar(limite).asked)
        moved, most = 0, max(limite - asked, limite // 4, 1)
        for one in plano(self._due(limite)):
            if moved >= most:
                break
            if one.conferir and one.situacao is not None:
                self._looked_again(one.org_id, one.nome, one.situacao.id)
                moved += 1
            else:
                moved += self._carried(one.acao, one.org_id, one.nome)
        return asked + moved

    def _due(self, limite: int) -> list[Devido]:
        """What is due, as the plan wants to see it; a window beyond the budget, so that the plan has a choice."""
        with self._database.statements() as connection:
            now = self._dialect.now(connection)
            documents = connection.rows(tables.DUE, (now, limite * WINDOW))
            acts = connection.rows(tables.DUE_ACTS, (now, limite * WINDOW))
        found = [
            Devido(Acao(act["acao"]), act["de"], act["nome"], None if act["id"] is None else _situation(act))
            for act in acts
        ]
        ready = [row for row in documents if row["tp_emis"] != "4" or row["epec_em"] or row["estado"] == "AUTORIZADO"]
        found += [Devido(Acao.EMITIR, row["org_id"], row["id_idempotencia"], _situation(row)) for row in ready]
        return found

    def _carried(self, acao: Acao, org_id: str, nome: str) -> bool:
        if self._fiscal.atos.em_duvida(acao, org_id, nome):
            return False
        try:
            self._fiscal.atos.cumprir(acao, org_id, nome)
        except StoreError:
            raise
        except Exception as trouble:  # noqa: BLE001  # one taxpayer's (a certificate that does not open) is not another's
            LOG.warning("%s %s of %s waits: %s", acao.value, nome, org_id, trouble)
            self._fiscal.atos.planejar(acao, org_id, nome, trouble)
            return False
        return True

    def _looked_again(self, org_id: str, nome: str, document: str) -> None:
        """A note whose cancellation was given up, or that may have been delivered twice: what the authority has is
        adopted; where it did not say, it is asked again later."""
        with self._database.transaction() as connection:
            tables.note(connection, document, {"proximo_em": None})
        found = self._fiscal.atos.perguntar(Acao.EMITIR, org_id, nome)
        if found.veredito is Veredito.NAO_SEI:
            with self._database.transaction() as connection:
                pause = max(self._fiscal.atos.termos.conferir, found.espera)
                tables.note(connection, document, {"proximo_em": self._dialect.now(connection) + int(pause * 1000)})


def anos(now: int) -> tuple[str, str]:
    """The year that a voiding is asked for in, in Brasília, and the one before: a repeat after New Year is a repeat."""
    year = datetime.fromtimestamp(now // 1000, UTC).astimezone(BRASILIA).year
    return f"{year % 100:02d}", f"{(year - 1) % 100:02d}"


def _absent(row: Row) -> bool:
    """Whether our books prove that the authority does not have it: never sent, or asked since and not there."""
    return row["enviado_em"] is None or (row["ausente_em"] is not None and row["ausente_em"] >= row["enviado_em"])


def _used(number: int, why: str) -> Problem:
    detail = f"O número {number} não pode ser inutilizado: {why}."
    return Problem(409, "numero-em-uso", "Número em uso", detail, numero=number)


def _situation(row: Row) -> Situacao:
    return Situacao(
        row["id"],
        row["modelo"],
        _uf(row),
        Estado(row["estado"]),
        row["tp_emis"],
        row["emitido_em"],
        row["autorizado_em"],
        row["epec_em"],
        row["incidente"] is not None,
    )


def _uf(row: Row) -> str:
    from umavez_systems.fiscal.rules.identifiers import UFS  # noqa: PLC0415  # only here

    code = "" if Tipo(row["tipo"]).de_servico else (row["chave_acesso"] or "")[:2]
    return next((uf for uf, number in UFS.items() if number == code), "")
