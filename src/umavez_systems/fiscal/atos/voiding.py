"""Voiding, written down. Repeating it is answered with 563 and the first protocol: the same bytes may always go."""

from __future__ import annotations

from collections.abc import Callable

from umavez_systems.database import Connection, Row
from umavez_systems.fiscal import database as tables
from umavez_systems.fiscal.atos.records import Cadeia, Registro, resumo_de
from umavez_systems.fiscal.atos.steps import (
    BLOQUEIO,
    FEITO,
    NAO_FEITO,
    PARADA,
    Conclusao,
    Contexto,
    Regras,
    Veredito,
)
from umavez_systems.fiscal.domain import Acao, Desfecho, Estado, Tipo
from umavez_systems.fiscal.ports import Ato, AutoridadeError, Resposta
from umavez_systems.fiscal.rules.decisions import Decisao, decidir_evento
from umavez_systems.problems import Problem

D = Desfecho
NUMBERS = (
    "SELECT id FROM documentos_fiscais WHERE org_id = ? AND modelo = ? AND serie = ? AND numero BETWEEN ? AND ?"
    " ORDER BY id"
)


Anular = Callable[[Connection, Row, str], None]
"""Keeps in the numbering that a range's numbers will not be used: connection, act, model."""


class Inutilizacao:
    """The voiding of a range of numbers."""

    acao = Acao.INUTILIZAR

    def __init__(self, dialect: tables.Dialect, regras: Regras, anular: Anular) -> None:
        self._dialect = dialect
        self._regras = regras
        self._anular = anular

    def contexto(self, connection: Connection, org_id: str, nome: str) -> Contexto:
        """The stored request. Raises a 404 problem."""
        act = connection.row(tables.ACT, (org_id, nome))
        if act is None:
            raise Problem(404, "nao-encontrado", "Inutilização não encontrada", "Não há pedido com este nome.")
        return Contexto(org_id, Ato(Acao.INUTILIZAR, nome, bytes(act["xml"]), Tipo(act["tipo"])), None)

    def sabido(self, connection: Connection, contexto: Contexto) -> Conclusao | None:
        """Nothing has to be asked: the same request tells."""
        act = self._held(connection, contexto)
        return NAO_FEITO if act["estado"] == "PENDENTE" else FEITO

    def antes(self, connection: Connection, contexto: Contexto) -> Veredito:
        """That the request is about to leave."""
        act = self._held(connection, contexto)
        if act["estado"] != "PENDENTE":
            return Veredito.FEITO
        chain = self._chain(connection, act)
        chain.anotar("envio", {"id": act["nome"], "sha256": resumo_de(contexto.ato.xml)})
        chain.gravar(connection)
        return Veredito.NAO_FEITO

    def falhou(self, connection: Connection, contexto: Contexto, error: AutoridadeError) -> None:
        """The request stays open."""
        chain = self._chain(connection, self._held(connection, contexto))
        chain.falha(error)
        chain.gravar(connection)

    def respondido(self, connection: Connection, contexto: Contexto, resposta: Resposta) -> Conclusao:
        """The answer, and what it does to the documents of the range."""
        act = self._held(connection, contexto)
        decided = decidir_evento(resposta, contexto.ato, self._regras.catalogo, contexto.ato.tipo.autoridade)
        chain = self._chain(connection, act)
        chain.resposta(resposta, decided)
        chain.gravar(connection)
        match decided.desfecho:
            case D.INUTILIZADO:
                self._close(connection, act, "FEITO", decided, resposta)
                return FEITO
            case D.REJEITADO:
                self._close(connection, act, "RECUSADO", decided, resposta)
                return FEITO
            case D.SERVICO_PARADO | D.CONSUMO_INDEVIDO:
                blocked = decided.desfecho is D.CONSUMO_INDEVIDO
                return Conclusao(Veredito.ESPERAR, decided.motivo, BLOQUEIO if blocked else PARADA, blocked)
            case _:
                return Conclusao(Veredito.NAO_SEI, f"{decided.regra}: {decided.motivo}"[:500])

    def _close(self, connection: Connection, act: Row, state: str, decided: Decisao, resposta: Resposta) -> None:
        values = {"codigo": resposta.codigo, "motivo": resposta.motivo[:500], "protocolo": decided.protocolo}
        tables.change_act(connection, act, {"estado": state, "proximo_em": None, **values})
        modelo = Tipo(act["tipo"]).modelo
        place = (act["org_id"], modelo, act["serie"], act["primeiro"], act["ultimo"])
        for found in connection.rows(NUMBERS, place):
            document = self._dialect.locked(connection, found["id"])
            if document is None or document["inutilizacao"] != act["nome"]:
                continue
            record = Registro(connection, document)
            if state == "FEITO" and record.estado is not Estado.INUTILIZADO:
                record.passar(Estado.INUTILIZADO, protocolo=decided.protocolo, proximo_em=None)
            else:
                record.notar(inutilizacao=None)
            record.gravar()
        if state == "FEITO":
            self._anular(connection, act, modelo)

    def consultado(self, connection: Connection, contexto: Contexto, resposta: Resposta) -> Conclusao:
        """There is no query for a voiding."""
        return NAO_FEITO

    def marcar(self, connection: Connection, contexto: Contexto, espera_ms: int) -> None:
        """When it will be looked at again."""
        act = self._held(connection, contexto)
        if act["estado"] == "PENDENTE":
            tables.change_act(connection, act, {"proximo_em": self._dialect.now(connection) + espera_ms})

    def _held(self, connection: Connection, contexto: Contexto) -> Row:
        act = self._dialect.locked_act(connection, contexto.org_id, contexto.ato.nome)
        if act is None:
            raise Problem(404, "nao-encontrado", "Inutilização não encontrada", "Não há pedido com este nome.")
        return act

    def _chain(self, connection: Connection, act: Row) -> Cadeia:
        return Cadeia.continuada(connection, act["nome"], self._dialect.now(connection))
