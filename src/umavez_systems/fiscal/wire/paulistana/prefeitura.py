"""SaoPaulo: the Autoridade of the city's NFS-e. Builds and signs; carries; reads. Decides nothing.

An RPS that arrives again is not refused: the city cancels the first note and issues another. So a question looks by
the RPS's key, and, before it is called absent for good or where more than one note may have been made of it, through
every page of the period: the key alone tells of the newest note only, and nothing of one that was destroyed for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from xml.sax.saxutils import escape

from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez_systems.fiscal.domain import Acao
from umavez_systems.fiscal.ports import Ato, AutoridadeError, Montado, Numerado, Resposta, SemResposta
from umavez_systems.fiscal.rules.deadlines import BRASILIA
from umavez_systems.fiscal.rules.identifiers import invalid
from umavez_systems.fiscal.rules.retrying import TEMPO_DE_CONSULTA, TEMPO_DE_ENVIO
from umavez_systems.fiscal.wire import signing
from umavez_systems.fiscal.wire.asking import DeServicos, Pergunta
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.fiscal.wire.nfe import Emitente
from umavez_systems.fiscal.wire.paulistana import reading, rps
from umavez_systems.fiscal.wire.paulistana.period import Periodo
from umavez_systems.fiscal.wire.paulistana.reading import NOT_FOUND, REISSUED, Nota, Retorno
from umavez_systems.fiscal.wire.soap import Correio

BASES = {
    "1": "https://nfe.prefeitura.sp.gov.br/ws/lotenfe.asmx",
    "2": "https://nfews.prefeitura.sp.gov.br/lotenfe.asmx",
}
"""By layout; there is no environment to try things out in."""
LARGEST = 500_000
"""Bytes of a message (manual 2.4.4)."""
UNKNOWN = "desconhecida"
SITUACOES = {"N": "NFS-e encontrada.", "C": "NFS-e cancelada."}
MEMORY = 30.0
"""Seconds for which the notes of a period, read once, serve questions about documents that are decided."""


class SaoPaulo(DeServicos):
    """One taxpayer's access to the city."""

    nome = "sp"

    def __init__(
        self,
        emitente: Emitente,
        certificado: Certificado,
        correio: Correio,
        *,
        base: Callable[[], str] | None = None,
        envio: float = TEMPO_DE_ENVIO,
        consulta: float = TEMPO_DE_CONSULTA,
        sleep: Callable[[float], None] = time.sleep,
        hoje: Callable[[], date] | None = None,
    ) -> None:
        if emitente.ccm is None:
            raise invalid("ccm: falta na organização; é a inscrição municipal em São Paulo.")
        super().__init__(emitente, certificado, correio, base=base, envio=envio, consulta=consulta, sleep=sleep)
        self._hoje = hoje or (lambda: datetime.now(UTC).astimezone(BRASILIA).date())
        self._periodo = Periodo(self._page, self._hoje)

    def montar(self, numerado: Numerado) -> Montado:
        """The request that converts the RPS, signed twice; number and key of the note will be the city's to give."""
        name = rps.identidade(self.emitente, numerado)
        xml = self._signed(rps.envio(self.emitente, numerado, self._certificado))
        digest = rps.digest_de(numerado.emissao[:10], numerado.pedido.total)
        return Montado(xml, name, None, name, digest, f"{numerado.pedido.total:.2f}")

    def _signed(self, tree: Any) -> bytes:
        xml: bytes = etree.tostring(signing.assinar(tree, None, self._certificado))
        if len(xml) > LARGEST:
            raise invalid(f"A mensagem passa de {LARGEST} bytes.")
        return xml

    def montar_cancelamento(
        self, ato: Ato, protocolo: str, justificativa: str, quando: str, substituta: str | None = None
    ) -> Ato:
        """The cancellation of a note by its number; the city asks for no reason, our books keep it."""
        if substituta is not None:
            raise invalid("substituta: São Paulo não tem cancelamento por substituição.")
        name = f"CANC{rps.texto_do_cancelamento(self.emitente.ccm or '', protocolo)}"
        xml = self._signed(rps.cancelamento(self.emitente, protocolo, self._certificado))
        about = (ato.chave, ato.digest, justificativa, 1, ato.documento)
        return Ato(Acao.CANCELAR, name, xml, ato.tipo, "1", *about)

    def montar_correcao(self, ato: Ato, texto: str, sequencia: int, quando: str) -> Ato:
        """There is none."""
        raise invalid("carta de correção: a NFS-e de São Paulo não tem; cancele e emita outra.")

    def transmitir(self, ato: Ato) -> Resposta:
        """Send the stored bytes of an act."""
        if ato.acao is Acao.CANCELAR:
            return reading.cancelamento(self._send("CancelamentoNFe", "RetornoCancelamentoNFe", ato.xml))
        answer = reading.autorizacao(self._send("EnvioRPS", "RetornoEnvioRPS", ato.xml), ato.nome)
        return self._with_losses(answer, ato) if answer.codigo == REISSUED else answer

    def _with_losses(self, answer: Resposta, ato: Ato) -> Resposta:
        """The answer with the notes that were cancelled for it; that some were is known even where they are not."""
        try:
            found, _ = self._periodo.notas(self._pergunta(), ato.nome, self._first_day(ato))
            lost = tuple(note.chave for note in found if note.chave != answer.chave)
        except AutoridadeError:
            lost = ()
        return replace(answer, anteriores=lost or (UNKNOWN,))

    def montar_lote(self, atos: list[Ato], *, transacao: bool = False) -> bytes:
        """One EnvioLoteRPS around up to fifty stored RPS, the same bytes every time. Raises 422 problems."""
        made = [etree.fromstring(ato.xml).find("RPS") for ato in atos]
        return self._signed(rps.lote(self.emitente, made, transacao))

    def transmitir_lote(
        self, atos: list[Ato], *, transacao: bool = False, xml: bytes | None = None
    ) -> list[Resposta | SemResposta]:
        """Send a batch, as it was made before or made now; what the answer says about each RPS, in their order."""
        message = self.montar_lote(atos, transacao=transacao) if xml is None else xml
        found = self._send("EnvioLoteRPS", "RetornoEnvioLoteRPS", message)
        told: list[Resposta | SemResposta] = []
        for ato in atos:
            try:
                answer = reading.de_lote(found, ato.nome)
                told.append(self._with_losses(answer, ato) if answer.codigo == REISSUED else answer)
            except SemResposta as silence:
                told.append(silence)
        return told

    def consultar_lote(self, atos: list[Ato]) -> list[Resposta]:
        """One question by the keys of up to fifty RPS: what it tells of each, in their order."""
        asked = self._pergunta()
        found = self._ask(asked, "ConsultaNFe", rps.consulta(self.emitente, [ato.nome for ato in atos]))
        refused = next((error for error in found.erros if error[0] != NOT_FOUND), None)
        told: list[Resposta] = []
        for ato in atos:
            notes = [note for note in found.notas if note.sobre == ato.nome]
            if notes:
                told.append(_chosen(notes, ato, asked.bruto))
            else:
                said = refused or (NOT_FOUND, "Não consta pela chave do RPS.")
                told.append(Resposta("consulta", *said, asked.bruto))
        return told

    def consultar(self, ato: Ato) -> Resposta:
        """The note of an act's RPS by its key; and, where `ato.insistir`, by every page of the period."""
        name, asked = ato.documento or ato.nome, self._pergunta()
        found = self._ask(asked, "ConsultaNFe", rps.consulta(self.emitente, [name]))
        notes = {note.chave: note for note in found.notas if note.sobre == name}
        refused = next((error for error in found.erros if error[0] != NOT_FOUND), None)
        if not notes and refused is not None:
            return Resposta("consulta", *refused, asked.bruto)
        whole = True
        if ato.insistir:
            old = MEMORY if ato.decidido else ato.lido_ha
            more, whole = self._periodo.notas(asked, name, self._first_day(ato), old)
            notes = {note.chave: note for note in more} | notes  # what the key tells is younger
        if notes:
            return _chosen(list(notes.values()), ato, asked.bruto)
        words = "Não consta pela chave do RPS" + (" nem no período." if ato.insistir else ".")
        return Resposta("consulta", NOT_FOUND if whole else "periodo-incompleto", words, asked.bruto)

    def emitida(self, serie: str, numero: int, horas: int = 24) -> bool:
        """Whether the notes of the last hours have this RPS (seed 004 §4.1); also another's of the same series."""
        first = (datetime.now(UTC).astimezone(BRASILIA) - timedelta(hours=horas)).date()
        ccm = (self.emitente.ccm or "").zfill(8)
        found, whole = self._periodo.notas(self._pergunta(), f"{ccm}_{serie.strip()}_{numero:012d}", first)
        if not found and not whole:
            raise SemResposta("O período não pôde ser lido inteiro.")
        return bool(found)

    def _page(self, asked: Pergunta, first: date, last: date, page: int) -> Retorno:
        return self._ask(asked, "ConsultaNFeEmitidas", rps.periodo(self.emitente, first, last, page))

    def _first_day(self, ato: Ato) -> date:
        """The day before the RPS's own, or as far back as may be asked."""
        day = None if ato.acao is not Acao.EMITIR else etree.fromstring(ato.xml).findtext("RPS/DataEmissao")
        if day is None and ato.digest is not None:
            day = ato.digest.partition(":")[0]
        return date.fromisoformat(day or self._hoje().isoformat()) - timedelta(days=1)

    def situacao(self, tp_emis: str = "1") -> Resposta:
        """Whether the service answers; it has no question of its own for that."""
        wanted = rps.consulta(self.emitente, [f"{(self.emitente.ccm or '').zfill(8)}_1_{1:012d}"])
        found = self._ask(self._pergunta(), "ConsultaNFe", wanted)
        return Resposta("status", "200", "São Paulo responde.", found.bruto)

    def _send(self, method: str, tag: str, xml: bytes) -> Retorno:
        """One call that changes something: once, whatever happens to it."""
        address, body, headers = self._message(method, xml)
        return reading.retorno(self._correio.chamar("POST", address, self._envio, body, headers)[1], tag)

    def _ask(self, asked: Pergunta, method: str, tree: Any) -> Retorno:
        """One call of a question, signed as every other."""
        address, body, headers = self._message(method, self._signed(tree))
        return reading.retorno(asked.chamar("POST", address, body, headers)[1], "RetornoConsulta")

    def _message(self, method: str, xml: bytes) -> tuple[str, bytes, dict[str, str]]:
        action = f"{rps.NS}/ws/{method[0].lower()}{method[1:]}"
        inside = (
            f"<VersaoSchema>{self.emitente.layout_sp}</VersaoSchema><MensagemXML>{escape(xml.decode())}</MensagemXML>"
        )
        body = (
            '<?xml version="1.0" encoding="utf-8"?><soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/">'
            f'<soap:Body><{method}Request xmlns="{rps.NS}">{inside}</{method}Request></soap:Body></soap:Envelope>'
        )
        headers = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": f'"{action}"'}
        address = BASES[self.emitente.layout_sp] if self._base is None else self._base()
        return address, body.encode(), headers


def _chosen(notes: list[Nota], ato: Ato, raw: bytes) -> Resposta:
    """The note that counts, the living before the newest; every other of the same RPS was destroyed for it."""
    standing = [note for note in notes if note.situacao != "C"]
    living = [note for note in standing if note.situacao == "N"] or standing or notes
    chosen = max(living, key=lambda note: int(note.numero))
    lost = [note.chave for note in notes if note is not chosen]
    if ato.chave is not None and ato.chave != chosen.chave and ato.chave not in lost:
        lost.append(ato.chave)
    return Resposta(
        "consulta",
        chosen.situacao,
        SITUACOES.get(chosen.situacao, f"NFS-e em situação {chosen.situacao}."),
        raw,
        chave=chosen.chave,
        protocolo=chosen.numero,
        dig_val=chosen.digest,
        quando=chosen.quando,
        sobre=chosen.sobre,
        anteriores=tuple(sorted(lost)),
    )
