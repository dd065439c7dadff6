"""Writing down: a document's row and its proof chain, changed together in one transaction."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from umavez_systems.database import Connection, Row
from umavez_systems.fiscal import database as tables
from umavez_systems.fiscal.domain import Estado, pode_passar
from umavez_systems.fiscal.ports import AutoridadeError, Resposta
from umavez_systems.fiscal.rules.decisions import Decisao
from umavez_systems.fiscal.rules.proof import INICIO, Entrada, bruto, escrita
from umavez_systems.problems import Problem


class Conflito(Problem):
    """Somebody else changed the document meanwhile; nothing was overwritten."""

    def __init__(self, versao: int) -> None:
        detail = f"O documento foi modificado; leia de novo (a versão agora é {versao})."
        super().__init__(409, "versao-desatualizada", "Conflito de concorrência", detail, versao=versao)


class Proibida(Exception):
    """A change of state that the table of transitions does not have; a fault of ours, told loudly."""


class Cadeia:
    """The proof chain of one document (or of an act without one), inside a transaction that holds its row."""

    def __init__(self, documento: str, agora: int, sequencia: int = 0, resumo: str = INICIO) -> None:
        self.documento = documento
        self._novas: list[Entrada] = []
        self.agora = agora
        self.sequencia, self.resumo = sequencia, resumo

    @classmethod
    def continuada(cls, connection: Connection, documento: str, agora: int) -> Cadeia:
        """The chain as the database has it."""
        return cls(documento, agora, *tables.last_proof(connection, documento))

    def anotar(self, tipo: str, conteudo: dict[str, Any]) -> None:
        """Add an entry."""
        self.sequencia += 1
        entry = escrita(self.documento, self.sequencia, tipo, self.agora, conteudo, self.resumo)
        self._novas.append(entry)
        self.resumo = entry.resumo

    def gravar(self, connection: Connection) -> None:
        """Write the new entries."""
        if self._novas:
            tables.append_proofs(connection, self.colhidas())

    def colhidas(self) -> list[Entrada]:
        """The new entries, for whoever writes them."""
        new, self._novas = self._novas, []
        return new

    def resposta(self, resposta: Resposta, decisao: Decisao) -> None:
        """An answer as it came, and what was decided about it by which rule."""
        self.anotar("resposta", {"servico": resposta.servico, "codigo": resposta.codigo, **bruto(resposta.bruto)})
        self.anotar(
            "decisao",
            {
                "desfecho": decisao.desfecho.value,
                "regra": decisao.regra,
                "fonte": decisao.fonte,
                "acao": decisao.acao,
                "motivo": decisao.motivo,
                "protocolo": decisao.protocolo,
                "anomalia": decisao.anomalia,
                "outra_chave": decisao.outra_chave,
            },
        )

    def falha(self, error: AutoridadeError) -> None:
        """A call without a usable answer."""
        self.anotar("falha", {"tipo": type(error).__name__, "motivo": str(error), **bruto(error.bruto)})


class Registro:
    """A document under change: its row, its chain, and what will be written at the end.

    The row is held; or it is only `known`, and writing fails with Conflito if it has changed since.
    """

    def __init__(self, connection: Connection, row: Row, *, known: bool = False) -> None:
        agora = int(row["agora"])
        self._known = known
        self._connection = connection
        self.row = row
        self.agora = agora
        self.cadeia = Cadeia(row["id"], agora, row["prova_sequencia"], row["prova_resumo"])
        self._values: dict[str, Any] = {}
        self._notes: dict[str, Any] = {}

    @property
    def estado(self) -> Estado:
        """Where the document stands, what is about to be written included."""
        return Estado(str(self._values.get("estado", self.row["estado"])))

    def passar(self, para: Estado, **values: Any) -> None:
        """Go to another state, with what comes with it. Raises Proibida."""
        if para is not self.estado:
            if not pode_passar(self.estado, para):
                raise Proibida(f"{self.row['id']}: {self.estado} não passa a {para}")
            self.cadeia.anotar("estado", {"de": self.estado.value, "para": para.value})
            self._values["estado"] = para.value
        self._values.update(values)

    def notar(self, **values: Any) -> None:
        """Write values that are no change of the document itself."""
        self._notes.update(values)

    def gravar(self) -> Row:
        """Write everything. Raises Conflito."""
        heads = {"prova_sequencia": self.cadeia.sequencia, "prova_resumo": self.cadeia.resumo}
        notes = {**self._notes, **heads}
        if self._known:
            return self._written_at_once({**self._values, **notes})
        self.cadeia.gravar(self._connection)
        if not self._values:
            tables.note(self._connection, self.row["id"], notes)
            return {**self.row, **notes}
        changed = tables.change(self._connection, self.row, {**self._values, **notes}, self.agora)
        if changed is None:
            raise Conflito(self.row["versao"] + 1)
        return changed

    def _written_at_once(self, values: dict[str, Any]) -> Row:
        now = self.agora if self._values else None
        changed = tables.change_known(self._connection, self.row, values, self.cadeia.colhidas(), now)
        if changed is None:
            raise Conflito(self.row["versao"] + 1)
        return changed


def resumo_de(xml: bytes) -> str:
    """The digest by which the log names bytes."""
    return sha256(bytes(xml)).hexdigest()
