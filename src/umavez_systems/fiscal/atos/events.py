"""Cancellation, correction letter and EPEC, written down: an act of its own beside the document it is about."""

from __future__ import annotations

from typing import Any

from umavez_systems.database import Connection, Row
from umavez_systems.fiscal import database as tables
from umavez_systems.fiscal.atos.records import Registro, resumo_de
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
from umavez_systems.fiscal.domain import Acao, Desfecho, Estado, Origem, Tipo
from umavez_systems.fiscal.ports import Ato, AutoridadeError, Resposta
from umavez_systems.fiscal.rules.decisions import (
    Decisao,
    cancelamento_de,
    correcao_de,
    decidir_consulta,
    decidir_evento,
)
from umavez_systems.problems import Problem

D = Desfecho
ABERTO = ("PENDENTE", "RECUSA")


class _Evento:
    """What events share. `RECUSA`: refused, and a query must still confirm that nothing was registered before."""

    acao: Acao

    def __init__(self, dialect: tables.Dialect, regras: Regras) -> None:
        self._dialect = dialect
        self._regras = regras

    def contexto(self, connection: Connection, org_id: str, nome: str) -> Contexto:
        """The stored act with its document's key. Raises a 404 problem."""
        act = connection.row(tables.ACT, (org_id, nome))
        document = None if act is None else connection.row(tables.DOCUMENT, (act["documento_id"],))
        if act is None or document is None:
            raise Problem(404, "nao-encontrado", "Ato não encontrado", "Não há pedido com este nome.")
        ato = Ato(
            Acao(act["acao"]),
            nome,
            bytes(act["xml"]),
            Tipo(act["tipo"]),
            document["tp_emis"],
            document["chave_acesso"],
            document["digest"],
            act["texto"],
            act["sequencia"],
            document["id_idempotencia"],
        )
        return Contexto(org_id, ato, document["id"])

    def sabido(self, connection: Connection, contexto: Contexto) -> Conclusao | None:
        """What is decided stays so."""
        act, record = self._held(connection, contexto)
        if act["estado"] not in ABERTO:
            return FEITO
        return self._settled_elsewhere(connection, act, record)

    def _settled_elsewhere(self, connection: Connection, act: Row, record: Registro) -> Conclusao | None:
        return None

    def antes(self, connection: Connection, contexto: Contexto) -> Veredito:
        """That these bytes are about to leave."""
        act, record = self._held(connection, contexto)
        if act["estado"] not in ABERTO or self._settled_elsewhere(connection, act, record) is not None:
            return Veredito.FEITO
        if not self._allowed(record):
            return Veredito.ESPERAR
        content = {"acao": self.acao.value, "id": act["nome"], "sha256": resumo_de(contexto.ato.xml)}
        record.cadeia.anotar("envio", content)
        record.gravar()
        return Veredito.NAO_FEITO

    def _allowed(self, record: Registro) -> bool:
        return True

    def falhou(self, connection: Connection, contexto: Contexto, error: AutoridadeError) -> None:
        """The act stays open; nothing is supposed."""
        _, record = self._held(connection, contexto)
        record.cadeia.falha(error)
        record.gravar()

    def respondido(self, connection: Connection, contexto: Contexto, resposta: Resposta) -> Conclusao:
        """The answer to the event."""
        decided = decidir_evento(resposta, contexto.ato, self._regras.catalogo, contexto.ato.tipo.autoridade)
        act, record = self._held(connection, contexto)
        record.cadeia.resposta(resposta, decided)
        concluded = self._answered(connection, act, record, decided, resposta)
        record.gravar()
        return concluded

    def _answered(
        self, connection: Connection, act: Row, record: Registro, decided: Decisao, resposta: Resposta
    ) -> Conclusao:
        match decided.desfecho:
            case D.REGISTRADO:
                return self._done(connection, act, record, resposta, decided.protocolo, Origem.EMISSAO)
            case D.REJEITADO:
                return self._refused(connection, act, record, resposta)
            case D.SERVICO_PARADO | D.CONSUMO_INDEVIDO:
                blocked = decided.desfecho is D.CONSUMO_INDEVIDO
                return Conclusao(Veredito.ESPERAR, decided.motivo, BLOQUEIO if blocked else PARADA, blocked)
            case _:
                return Conclusao(Veredito.NAO_SEI, f"{decided.regra}: {decided.motivo}"[:500])

    def consultado(self, connection: Connection, contexto: Contexto, resposta: Resposta) -> Conclusao:
        """What the query says about the document and its events."""
        decided = decidir_consulta(resposta, contexto.ato, self._regras.catalogo, contexto.ato.tipo.autoridade)
        act, record = self._held(connection, contexto)
        record.cadeia.resposta(resposta, decided)
        if decided.desfecho is D.CONSUMO_INDEVIDO:
            concluded = Conclusao(Veredito.ESPERAR, decided.motivo, BLOQUEIO, True)
        elif decided.desfecho in (D.AUTORIZADO, D.CANCELADO):
            concluded = self._looked_up(connection, act, record, resposta, decided)
        else:
            concluded = Conclusao(Veredito.NAO_SEI, f"{decided.regra}: {decided.motivo}"[:500])
        record.gravar()
        return concluded

    def _looked_up(
        self, connection: Connection, act: Row, record: Registro, resposta: Resposta, decided: Decisao
    ) -> Conclusao:
        """What a document that the authority knows says about this act; nothing, unless an act knows better."""
        return Conclusao(Veredito.NAO_SEI, "A situação do documento não diz se este evento foi registrado.")

    def _done(
        self,
        connection: Connection,
        act: Row,
        record: Registro,
        resposta: Resposta,
        protocolo: str | None,
        origem: Origem,
    ) -> Conclusao:
        values = {"protocolo": protocolo, "codigo": resposta.codigo, "motivo": resposta.motivo[:500]}
        tables.change_act(connection, act, {"estado": "FEITO", "proximo_em": None, **values})
        return FEITO

    def _refused(self, connection: Connection, act: Row, record: Registro, resposta: Resposta) -> Conclusao:
        values = {"codigo": resposta.codigo, "motivo": resposta.motivo[:500], "proximo_em": None}
        tables.change_act(connection, act, {"estado": "RECUSADO", **values})
        return FEITO

    def marcar(self, connection: Connection, contexto: Contexto, espera_ms: int) -> None:
        """When it will be looked at again."""
        act, record = self._held(connection, contexto)
        if act["estado"] in ABERTO:
            tables.change_act(connection, act, {"proximo_em": record.agora + espera_ms})

    def _held(self, connection: Connection, contexto: Contexto) -> tuple[Row, Registro]:
        """The document first, then the act: everybody takes them in this order."""
        document = self._dialect.locked(connection, contexto.documento or "")
        act = self._dialect.locked_act(connection, contexto.org_id, contexto.ato.nome)
        if act is None or document is None:
            raise Problem(404, "nao-encontrado", "Ato não encontrado", "Não há pedido com este nome.")
        return act, Registro(connection, document)


class Cancelamento(_Evento):
    """CANCELAMENTO_PENDENTE until the authority proves one or the other (seed 004 §8)."""

    acao = Acao.CANCELAR

    def _settled_elsewhere(self, connection: Connection, act: Row, record: Registro) -> Conclusao | None:
        if record.estado is not Estado.CANCELADO:
            return None
        tables.change_act(connection, act, {"estado": "FEITO", "proximo_em": None})
        return FEITO

    def _allowed(self, record: Registro) -> bool:
        return record.estado is Estado.CANCELAMENTO_PENDENTE

    def _refused(self, connection: Connection, act: Row, record: Registro, resposta: Resposta) -> Conclusao:
        """A refusal is confirmed by a query before it is believed: an earlier send may have been registered."""
        values = {"estado": "RECUSA", "codigo": resposta.codigo, "motivo": resposta.motivo[:500]}
        tables.change_act(connection, act, values)
        return Conclusao(Veredito.NAO_SEI, resposta.motivo[:500])

    def _done(
        self,
        connection: Connection,
        act: Row,
        record: Registro,
        resposta: Resposta,
        protocolo: str | None,
        origem: Origem,
    ) -> Conclusao:
        if record.estado is not Estado.CANCELADO:
            record.passar(Estado.CANCELADO, origem=origem.value, motivo=resposta.motivo[:500], proximo_em=None)
        return super()._done(connection, act, record, resposta, protocolo, origem)

    def _looked_up(
        self, connection: Connection, act: Row, record: Registro, resposta: Resposta, decided: Decisao
    ) -> Conclusao:
        event = cancelamento_de(resposta)
        if decided.desfecho is D.CANCELADO:
            protocol = None if event is None else event.protocolo
            return self._done(connection, act, record, resposta, protocol, Origem.CONCILIACAO)
        if act["estado"] != "RECUSA":
            return NAO_FEITO
        if record.estado is Estado.CANCELADO:
            return FEITO  # an answer that was given before the cancellation, and came after it
        tables.change_act(connection, act, {"estado": "RECUSADO", "proximo_em": None})
        record.passar(Estado.AUTORIZADO, motivo=f"Cancelamento recusado: {act['motivo']}"[:500])
        return FEITO

    def desistir(self, connection: Connection, contexto: Contexto, conferir_ms: int) -> bool:
        """Back to AUTORIZADO after a query proved that nothing was registered (seed 004 §8.1, step 6).

        The event may still arrive late, so the document will be looked at once more. False when it is decided since.
        """
        act, record = self._held(connection, contexto)
        if act["estado"] not in ABERTO or record.estado is not Estado.CANCELAMENTO_PENDENTE:
            return False
        tables.change_act(connection, act, {"estado": "NAO_REGISTRADO", "proximo_em": None})
        record.passar(Estado.AUTORIZADO, motivo="O cancelamento não foi registrado; a nota segue autorizada.")
        record.notar(proximo_em=record.agora + conferir_ms)
        record.gravar()
        return True


class Correcao(_Evento):
    """A correction letter: the document stays as it is."""

    acao = Acao.CORRIGIR

    def _looked_up(
        self, connection: Connection, act: Row, record: Registro, resposta: Resposta, decided: Decisao
    ) -> Conclusao:
        event = correcao_de(resposta, act["sequencia"])
        if event is not None and (event.texto is None or event.texto.strip() == act["texto"].strip()):
            return self._done(connection, act, record, resposta, event.protocolo, Origem.CONCILIACAO)
        if event is not None:
            values: dict[str, Any] = {"codigo": "573", "motivo": "Esta sequência já tem carta com outro texto."}
            tables.change_act(connection, act, {"estado": "RECUSADO", "proximo_em": None, **values})
            return FEITO
        return NAO_FEITO


class Epec(_Evento):
    """The advance notice of a note in contingency; the note itself follows with the same key."""

    acao = Acao.EPEC

    def _done(
        self,
        connection: Connection,
        act: Row,
        record: Registro,
        resposta: Resposta,
        protocolo: str | None,
        origem: Origem,
    ) -> Conclusao:
        record.notar(epec_em=record.agora)
        return super()._done(connection, act, record, resposta, protocolo, origem)

    def _refused(self, connection: Connection, act: Row, record: Registro, resposta: Resposta) -> Conclusao:
        """The note is never accepted without it: REJEITADO, and its number may be voided."""
        if record.estado is Estado.RASCUNHO:
            why = f"EPEC recusado: {resposta.motivo}"[:500]
            record.passar(Estado.REJEITADO, codigo=resposta.codigo, motivo=why, proximo_em=None)
        return super()._refused(connection, act, record, resposta)

    def sabido(self, connection: Connection, contexto: Contexto) -> Conclusao | None:
        """Repeating an EPEC is answered with 573, so there is nothing to ask: the same bytes say it."""
        known = super().sabido(connection, contexto)
        return NAO_FEITO if known is None else known

    def _answered(
        self, connection: Connection, act: Row, record: Registro, decided: Decisao, resposta: Resposta
    ) -> Conclusao:
        if decided.desfecho is D.JA_EXISTE:
            return self._done(connection, act, record, resposta, decided.protocolo, Origem.CONCILIACAO)
        return super()._answered(connection, act, record, decided, resposta)
