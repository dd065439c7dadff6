"""Emission, written down: TRANSMITIDO before the first byte leaves, the answer with its decision after."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
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
    ato_da_linha,
)
from umavez_systems.fiscal.domain import ABERTOS, Acao, Desfecho, Estado, Origem, pode_passar
from umavez_systems.fiscal.ports import Ato, AutoridadeError, Resposta, SemResposta
from umavez_systems.fiscal.rules.deadlines import BRASILIA
from umavez_systems.fiscal.rules.decisions import Decisao, cancelamento_de, decidir_consulta, decidir_emissao
from umavez_systems.problems import Problem

D = Desfecho
_PROTOCOL = re.compile(rb"<protNFe[ >].*?</protNFe>", re.DOTALL)


class Emissao:
    """The emission of documents of every kind."""

    acao = Acao.EMITIR

    def __init__(self, dialect: tables.Dialect, regras: Regras) -> None:
        self._dialect = dialect
        self._regras = regras

    def contexto(self, connection: Connection, org_id: str, nome: str) -> Contexto:
        """The stored emission. Raises a 404 problem."""
        row = self._dialect.named(connection, org_id, nome)
        if row is None:
            raise Problem(404, "nao-encontrado", "Documento não encontrado", "Não há documento com este nome.")
        return Contexto(org_id, self._ato(row), row["id"], row["enviado_em"] is None)

    def _ato(self, row: Row) -> Ato:
        """The stored emission; one that is absent is looked for everywhere as soon as its quarantine is over."""
        found = ato_da_linha(row)
        if found.decidido or row["ausente_em"] is None:
            return found
        since = (row["agora"] - row["ausente_em"]) / 1000 - self._regras.quarentena
        return replace(found, insistir=since >= 0, lido_ha=max(0.0, since))

    def sabido(self, connection: Connection, contexto: Contexto) -> Conclusao | None:
        """What is decided stays so; what was never sent is not there."""
        row = self._row(connection, contexto)
        state = Estado(row["estado"])
        if state not in ABERTOS:
            return FEITO
        return NAO_FEITO if state is Estado.RASCUNHO else None

    def antes(self, connection: Connection, contexto: Contexto) -> Veredito:
        """TRANSMITIDO, and that these bytes are about to leave."""
        record = self._held(connection, contexto)
        if record.estado not in ABERTOS:
            return Veredito.FEITO
        if record.row["inutilizacao"] is not None:
            return Veredito.ESPERAR
        contexto.primeira = record.row["enviado_em"] is None
        tries = record.row["tentativas"] + 1
        if contexto.levado is not None:
            record.cadeia.anotar("bytes", {"acao": "lote", "sha256": resumo_de(contexto.levado)})
        sent_as = contexto.ato.xml if contexto.levado is None else contexto.levado
        record.cadeia.anotar("envio", {"sha256": resumo_de(sent_as), "tentativa": tries})
        sent = record.agora if contexto.primeira else record.row["enviado_em"]
        if record.estado is Estado.TRANSMITIDO:
            record.notar(tentativas=tries, enviado_em=sent)
        else:
            record.passar(Estado.TRANSMITIDO, tentativas=tries, enviado_em=sent)
        record.notar(ausente_em=None)  # what is sent again may be there again
        record.gravar()
        return Veredito.NAO_FEITO

    def falhou(self, connection: Connection, contexto: Contexto, error: AutoridadeError) -> None:
        """INDETERMINADO where it may have arrived; RASCUNHO again where nothing ever left."""
        record = self._held(connection, contexto)
        record.cadeia.falha(error)
        if record.estado in ABERTOS:
            self._undecided(record, contexto, arrived=isinstance(error, SemResposta), why=str(error))
        record.gravar()

    def respondido(self, connection: Connection, contexto: Contexto, resposta: Resposta) -> Conclusao:
        """The answer to the emission."""
        decided = decidir_emissao(resposta, contexto.ato, self._regras.catalogo, contexto.ato.tipo.autoridade)
        return self._decided(connection, contexto, resposta, decided, Origem.EMISSAO)

    def consultado(self, connection: Connection, contexto: Contexto, resposta: Resposta) -> Conclusao:
        """The answer to the situation query."""
        decided = decidir_consulta(resposta, contexto.ato, self._regras.catalogo, contexto.ato.tipo.autoridade)
        return self._decided(connection, contexto, resposta, decided, Origem.CONCILIACAO)

    def marcar(self, connection: Connection, contexto: Contexto, espera_ms: int) -> None:
        """When it will be looked at again."""
        if contexto.documento is not None:
            now = self._dialect.now(connection)
            tables.note(connection, contexto.documento, {"proximo_em": now + espera_ms})

    def _decided(
        self, connection: Connection, contexto: Contexto, resposta: Resposta, decided: Decisao, origem: Origem
    ) -> Conclusao:
        known = contexto.conhecida
        record = self._held(connection, contexto) if known is None else Registro(connection, known, known=True)
        record.cadeia.resposta(resposta, decided)
        concluded = self._adopted(record, contexto, resposta, decided, origem)
        contexto.linha = record.gravar()
        return concluded

    def _adopted(
        self, record: Registro, contexto: Contexto, resposta: Resposta, decided: Decisao, origem: Origem
    ) -> Conclusao:
        state = decided.estado
        if state is None:
            return self._open(record, contexto, decided)
        if _late(record.estado, state):
            record.cadeia.anotar("ignorada", {"estado": record.estado.value, "resposta": state.value})
            return FEITO
        if record.estado is Estado.CANCELAMENTO_PENDENTE and state is Estado.AUTORIZADO:
            return FEITO  # the cancellation has a doubt of its own, which its own act closes
        if state is not record.estado or _lost(record.row, resposta):
            record.passar(state, **_outcome(resposta, decided, origem, record.row, record.agora))
            self._show_loss(record, contexto, resposta)
        elif record.row["protocolo"] is None and decided.protocolo is not None:
            # Adopted from an answer that did not say it.
            record.passar(state, protocolo=decided.protocolo, protocolo_xml=_kept(resposta))
        return FEITO

    def _show_loss(self, record: Registro, contexto: Contexto, resposta: Resposta) -> None:
        """Keep and show every document that the authority destroyed, and look again where one still may be."""
        found = _lost(record.row, resposta)
        if found:
            lost = {"anteriores": found, "atual": resposta.chave, "alertas": list(resposta.alertas)}
            record.cadeia.anotar("incidente", lost)
            record.passar(record.estado, incidente=json.dumps(lost, ensure_ascii=False))
        if contexto.ato.tipo.reenvio_destroi and record.row["estado"] in ABERTOS:
            # A gateway may have delivered it twice, and would not say so.
            record.notar(proximo_em=record.agora + int(self._regras.conferir * 1000))

    def _open(self, record: Registro, contexto: Contexto, decided: Decisao) -> Conclusao:
        """An answer that decides nothing about an emission that is still open."""
        if decided.desfecho is D.NAO_EXISTE and record.estado in (*ABERTOS, Estado.REJEITADO):
            record.notar(ausente_em=record.row["ausente_em"] or record.agora)
        if record.estado not in ABERTOS:
            return FEITO
        if decided.desfecho is D.NAO_EXISTE:
            return self._absent(record, contexto)
        if decided.desfecho in (D.SERVICO_PARADO, D.CONSUMO_INDEVIDO):
            self._undecided(record, contexto, arrived=False, why=decided.motivo)
            blocked = decided.desfecho is D.CONSUMO_INDEVIDO
            return Conclusao(Veredito.ESPERAR, decided.motivo, BLOQUEIO if blocked else PARADA, blocked)
        self._undecided(record, contexto, arrived=True, why=decided.motivo)
        return Conclusao(Veredito.NAO_SEI, f"{decided.regra}: {decided.motivo}"[:500])

    def _absent(self, record: Registro, contexto: Contexto) -> Conclusao:
        """The same bytes may go; where that would destroy a document that comes late, only after a second look, which
        goes through everything."""
        if not contexto.ato.tipo.reenvio_destroi:
            return NAO_FEITO
        since = record.row["ausente_em"]
        if contexto.ato.insistir and since is not None and record.agora - since >= self._regras.quarentena * 1000:
            return NAO_FEITO
        said = f"Não consta; só depois de {self._regras.quarentena:g} s e de outra consulta pode ser reenviado."
        return Conclusao(Veredito.NAO_SEI, said)

    def _undecided(self, record: Registro, contexto: Contexto, *, arrived: bool, why: str) -> None:
        if not arrived and contexto.primeira:
            if record.estado is Estado.TRANSMITIDO:
                record.passar(Estado.RASCUNHO, motivo=why[:500], enviado_em=None)
            return
        if record.estado is Estado.TRANSMITIDO:
            record.passar(Estado.INDETERMINADO, motivo=why[:500])
        if arrived:
            contexto.primeira = False

    def _held(self, connection: Connection, contexto: Contexto) -> Registro:
        row = self._dialect.locked(connection, contexto.documento or "")
        if row is None:
            raise Problem(404, "nao-encontrado", "Documento não encontrado", "Não há documento com este id.")
        return Registro(connection, row)

    def _row(self, connection: Connection, contexto: Contexto) -> Row:
        row = connection.row(tables.DOCUMENT, (contexto.documento,))
        if row is None:
            raise Problem(404, "nao-encontrado", "Documento não encontrado", "Não há documento com este id.")
        return row


def _lost(row: Row, resposta: Resposta) -> list[str]:
    """Every destroyed document known by now, where the answer tells of one that the books do not have."""
    known: list[str] = [] if row["incidente"] is None else json.loads(row["incidente"])["anteriores"]
    told = [chave for chave in resposta.anteriores if chave not in known]
    return known + told if told else []


def _late(now: Estado, said: Estado) -> bool:
    """Whether an answer is older than what the books know since: it decides nothing, and stands in the proof only."""
    return said is not now and now not in ABERTOS and not pode_passar(now, said)


def _kept(resposta: Resposta) -> str | None:
    """What an answer brings to be kept beside the document: the note, or its protocol."""
    found = _PROTOCOL.search(resposta.bruto)
    return resposta.documento or (None if found is None else found.group().decode("utf-8", "replace"))


def _outcome(resposta: Resposta, decided: Decisao, origem: Origem, row: Row, now: int) -> dict[str, Any]:
    """What a decided document keeps."""
    kept = _kept(resposta)
    cancelled = cancelamento_de(resposta)
    values: dict[str, Any] = {
        "origem": origem.value,
        "codigo": resposta.codigo,
        "motivo": decided.motivo[:500],
        "proximo_em": None,
        "protocolo": decided.protocolo or row["protocolo"],
    }
    if decided.estado in (Estado.AUTORIZADO, Estado.CANCELADO):
        values["protocolo_xml"] = kept or row["protocolo_xml"]
        values["chave_acesso"] = resposta.chave or row["chave_acesso"]
    if decided.estado is Estado.AUTORIZADO:
        values["autorizado_em"] = _authorised_at(resposta, row, now)
    if decided.estado is Estado.CANCELADO and cancelled is not None and cancelled.protocolo:
        values["motivo"] = f"Cancelado pelo evento de protocolo {cancelled.protocolo}"
    return values


def _authorised_at(resposta: Resposta, row: Row, now: int) -> int:
    """When the authority says that it was, in milliseconds: the right to cancel runs from then, however late its answer
    was found. Never before the emission nor after now; now where nothing is said."""
    try:
        told = datetime.fromisoformat(resposta.quando or "")
    except ValueError:
        return now
    there = told if told.tzinfo is not None else told.replace(tzinfo=BRASILIA)  # São Paulo tells no zone
    return min(max(int(there.timestamp() * 1000), int(row["emitido_em"])), now)
