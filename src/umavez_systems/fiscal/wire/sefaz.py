"""Sefaz: the Autoridade of NF-e and NFC-e. Builds, signs and validates; carries; reads. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez_systems.fiscal.domain import Acao, Tipo
from umavez_systems.fiscal.ports import Ato, Montado, Numerado, Resposta
from umavez_systems.fiscal.rules.identifiers import UFS, Chave, id_evento, id_inutilizacao, invalid
from umavez_systems.fiscal.rules.retrying import TEMPO_DE_CONSULTA, TEMPO_DE_ENVIO
from umavez_systems.fiscal.wire import answers, events, nfe, qrcode, schemas, signing
from umavez_systems.fiscal.wire.addresses import SERVICES, Enderecos
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.fiscal.wire.soap import Correio
from umavez_systems.problems import Problem

READERS: dict[str, Callable[[bytes], Resposta]] = {
    "autorizacao": answers.autorizacao,
    "consulta": answers.consulta,
    "evento": answers.evento,
    "inutilizacao": answers.inutilizacao,
    "status": answers.status,
}
SERVICE = {
    Acao.EMITIR: "autorizacao",
    Acao.CANCELAR: "evento",
    Acao.CORRIGIR: "evento",
    Acao.EPEC: "evento",
    Acao.INUTILIZAR: "inutilizacao",
}


class Sefaz:
    """One taxpayer's access to SEFAZ. `ambiente`: 1 production, 2 homologation."""

    nome = "sefaz"

    def __init__(
        self,
        emitente: nfe.Emitente,
        certificado: Certificado,
        enderecos: Enderecos,
        correio: Correio,
        *,
        envio: float = TEMPO_DE_ENVIO,
        consulta: float = TEMPO_DE_CONSULTA,
    ) -> None:
        self.emitente = emitente
        self._certificado = certificado
        self._enderecos = enderecos
        self._correio = correio
        self._ambiente = enderecos.ambiente
        self._envio = envio
        self._consulta = consulta

    def montar(self, numerado: Numerado) -> Montado:
        """The note's signed bytes, valid by the official schema. Raises 422 problems."""
        chave = nfe.chave_de(self.emitente, numerado)
        tree = nfe.arvore(self.emitente, numerado, self._ambiente)
        signed = signing.assinar(tree, f"NFe{chave}", self._certificado)
        if numerado.pedido.tipo is Tipo.NFCE:
            buyer = numerado.pedido.destinatario
            qrcode.anexar(signed, self.emitente, self._certificado, self._ambiente, buyer)
        xml = self._checked("nfe", signed)
        digest = signing.digest_of(signed)
        names = (chave.id_idempotencia, str(chave), chave.natural(self._ambiente))
        return Montado(xml, *names, digest, str(tree.findtext(f".//{{{nfe.NS}}}vNF")))

    def montar_cancelamento(
        self, ato: Ato, protocolo: str, justificativa: str, quando: str, substituta: str | None = None
    ) -> Ato:
        """The cancellation of a note; by substitution for an NFC-e. Raises a 409 problem without its protocol."""
        if not protocolo:
            detail = "A autoridade ainda não disse o protocolo desta nota; concilie o documento e cancele de novo."
            raise Problem(409, "sem-protocolo", "Protocolo desconhecido", detail)
        if substituta is not None:
            if ato.tipo is not Tipo.NFCE:
                raise invalid("substituta: cancelamento por substituição existe só para NFC-e.")
            other = str(Chave.lida(substituta))
            change = events.substituicao(UFS[self.emitente.uf], protocolo, justificativa, other)
            kind = events.SUBSTITUICAO
            return self._event(ato, Acao.CANCELAR, kind, 1, quando, change, "substituicao", justificativa)
        detail = events.cancelamento(protocolo, justificativa)
        return self._event(ato, Acao.CANCELAR, events.CANCELAMENTO, 1, quando, detail, "cancelamento", justificativa)

    def montar_correcao(self, ato: Ato, texto: str, sequencia: int, quando: str) -> Ato:
        """A correction letter; only NF-e has them."""
        if ato.tipo is not Tipo.NFE:
            raise invalid("Carta de correção existe só para NF-e.")
        detail = events.correcao(texto)
        return self._event(ato, Acao.CORRIGIR, events.CORRECAO, sequencia, quando, detail, "correcao", texto)

    def montar_epec(self, ato: Ato, quando: str) -> Ato:
        """The advance notice of a note in contingency, made from the note itself; goes to the national authoriser."""
        chave, where = ato.chave or "", UFS[self.emitente.uf]
        identity = id_evento(events.EPEC, chave, 1)
        detail = events.epec(etree.fromstring(ato.xml), where)
        about = (identity, events.NATIONAL, self._ambiente, self.emitente.cnpj, chave, quando, events.EPEC, 1)
        xml = self._checked("epec", signing.assinar(events.evento(*about, detail), identity, self._certificado))
        return Ato(Acao.EPEC, identity, xml, ato.tipo, ato.tp_emis, chave, ato.digest)

    def _event(
        self, ato: Ato, acao: Acao, tipo: str, sequence: int, quando: str, detail: Any, schema: str, text: str
    ) -> Ato:
        chave = ato.chave or ""
        identity = id_evento(tipo, chave, sequence)
        where = UFS[self.emitente.uf]
        tree = events.evento(identity, where, self._ambiente, self.emitente.cnpj, chave, quando, tipo, sequence, detail)
        signed = signing.assinar(tree, identity, self._certificado)
        xml = self._checked(schema, signed)
        return Ato(acao, identity, xml, ato.tipo, ato.tp_emis, chave, ato.digest, text, sequence)

    def montar_inutilizacao(
        self, tipo: Tipo, ano: str, serie: int, primeiro: int, ultimo: int, justificativa: str
    ) -> Ato:
        """The voiding of numbers."""
        cuf, cnpj = UFS[self.emitente.uf], self.emitente.cnpj
        identity = id_inutilizacao(cuf, ano, cnpj, tipo.modelo, serie, primeiro, ultimo)
        faixa = (serie, primeiro, ultimo)
        tree = events.inutilizacao(identity, cuf, self._ambiente, ano, cnpj, tipo.modelo, faixa, justificativa)
        signed = signing.assinar(tree, identity, self._certificado)
        return Ato(Acao.INUTILIZAR, identity, self._checked("inutilizacao", signed), tipo, texto=justificativa)

    def _checked(self, schema: str, signed: Any) -> bytes:
        """The bytes of a signed tree, valid by its schema."""
        schemas.validate(schema, signed)
        xml: bytes = etree.tostring(signed)
        return xml

    def transmitir(self, ato: Ato) -> Resposta:
        """Send the stored bytes of an act."""
        service = SERVICE[ato.acao]
        if service == "autorizacao":
            number = int((ato.chave or "")[25:34])
            xml = events.lote_nfe(ato.xml, number)
        else:
            xml = events.lote_evento(ato.xml) if service == "evento" else ato.xml
        # A correction letter always goes to the normal authoriser, whoever authorised the note.
        mode = "1" if ato.acao is Acao.CORRIGIR else ato.tp_emis
        return self._call(service, ato.tipo.modelo, mode, xml, self._envio, nacional=ato.acao is Acao.EPEC)

    def consultar(self, ato: Ato) -> Resposta:
        """The situation of an act's note, at the authoriser that its mode of emission names."""
        xml = events.consulta(self._ambiente, ato.chave or "")
        return self._call("consulta", ato.tipo.modelo, ato.tp_emis, xml, self._consulta)

    def situacao(self, tp_emis: str = "1") -> Resposta:
        """Whether the service is up."""
        xml = events.status(self._ambiente, UFS[self.emitente.uf])
        return self._call("status", "55", tp_emis, xml, self._consulta)

    def _call(
        self, name: str, modelo: str, tp_emis: str, xml: bytes, timeout: float, *, nacional: bool = False
    ) -> Resposta:
        address = self._enderecos.servico(name, modelo, tp_emis, nacional=nacional)
        _, wsdl, verb = SERVICES[name]
        return READERS[name](self._correio.levar(address, wsdl, verb, xml, timeout))

    def close(self) -> None:
        """Give the connections back."""
        self._correio.close()
