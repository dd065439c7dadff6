"""Nacional: the Autoridade of the national NFS-e. Builds, signs and validates; carries; reads. Decides nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez_systems.fiscal.domain import Acao
from umavez_systems.fiscal.ports import Ato, Evento, Montado, Numerado, Resposta
from umavez_systems.fiscal.rules.identifiers import chave_nfse, id_dps, id_pedido_evento, invalid
from umavez_systems.fiscal.rules.retrying import TEMPO_DE_CONSULTA, TEMPO_DE_ENVIO
from umavez_systems.fiscal.wire import schemas, signing
from umavez_systems.fiscal.wire.asking import DeServicos, Pergunta
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.fiscal.wire.nacional import dps, reading
from umavez_systems.fiscal.wire.nacional.packing import desembalar, embalar
from umavez_systems.fiscal.wire.nfe import Emitente
from umavez_systems.fiscal.wire.soap import Correio

BASES = {
    "1": "https://sefin.nfse.gov.br/SefinNacional",
    "2": "https://sefin.producaorestrita.nfse.gov.br/SefinNacional",
}
"""Production and restricted production."""
JSON = {"Content-Type": "application/json", "Accept": "application/json"}
SENT = frozenset({200, 201, 400, 409, 422})
FOUND = frozenset({200, 404})


class Nacional(DeServicos):
    """One taxpayer's access to SEFIN Nacional."""

    nome = "adn"

    def __init__(
        self,
        emitente: Emitente,
        certificado: Certificado,
        ambiente: str,
        correio: Correio,
        *,
        base: Callable[[], str] | None = None,
        envio: float = TEMPO_DE_ENVIO,
        consulta: float = TEMPO_DE_CONSULTA,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(emitente, certificado, correio, base=base, envio=envio, consulta=consulta, sleep=sleep)
        self._ambiente = ambiente

    def montar(self, numerado: Numerado) -> Montado:
        """The DPS's signed bytes, valid by the official schema; the key will be SEFIN's to give."""
        name = dps.identidade(self.emitente, numerado)
        tree = dps.arvore(self.emitente, numerado, self._ambiente)
        signed = signing.assinar(tree, id_dps(name), self._certificado)
        schemas.validate("dps", signed)
        total = f"{numerado.pedido.total:.2f}"
        return Montado(etree.tostring(signed), name, None, name, signing.digest_of(signed), total)

    def montar_cancelamento(
        self, ato: Ato, protocolo: str, justificativa: str, quando: str, substituta: str | None = None
    ) -> Ato:
        """Event 101101. By substitution is SEFIN's own event, made when the new DPS names the old note."""
        if substituta is not None:
            raise invalid("substituta: na NFS-e, emita a nova com servico.substitui.")
        chave = ato.chave or ""
        identity = id_pedido_evento(chave, dps.CANCELAMENTO)
        tree = dps.pedido_de_cancelamento(identity, chave, self.emitente, self._ambiente, quando, justificativa)
        signed = signing.assinar(tree, identity, self._certificado)
        schemas.validate("pedido_evento", signed)
        xml: bytes = etree.tostring(signed)
        return Ato(Acao.CANCELAR, identity, xml, ato.tipo, "1", chave, ato.digest, justificativa, 1, ato.documento)

    def montar_correcao(self, ato: Ato, texto: str, sequencia: int, quando: str) -> Ato:
        """There is none."""
        raise invalid("carta de correção: a NFS-e não tem; substitua a nota.")

    def transmitir(self, ato: Ato) -> Resposta:
        """Send the stored bytes of an act, packed; packing them again gives the same text."""
        packed = embalar(ato.xml)
        if ato.acao is Acao.EMITIR:
            return reading.autorizacao(*self._post("nfse", {"dpsXmlGZipB64": packed}))
        chave = ato.chave or ""
        body = {"pedidoRegistroEventoXmlGZipB64": packed}
        return reading.registro(*self._post(f"nfse/{chave}/eventos", body), chave)

    def _post(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        content = json.dumps(body).encode()
        return self._correio.chamar("POST", self._address(path), self._envio, content, JSON, SENT)

    def consultar(self, ato: Ato) -> Resposta:
        """HEAD /dps, GET /dps, the note, and the events that cancel one: the note's own code never tells of those."""
        asked = self._pergunta()
        chave = ato.chave
        if chave is None:
            identity = id_dps(ato.documento or ato.nome)
            if not self.existe(identity, asked):
                code = "404" if self.emitente.emissor_nacional else "404-emissor-proprio"
                return Resposta("consulta", code, "Não há nota desta DPS.", asked.bruto)
            chave = self.chave_de(identity, asked)
            if chave is None:
                return Resposta("consulta", "sem-chave", "A DPS existe e a chave não foi dada.", asked.bruto)
        status, raw = self._get(asked, f"nfse/{chave}", FOUND)
        if status == 404:
            return Resposta("consulta", "sem-nota", "A chave não foi encontrada.", asked.bruto)
        return self._found(chave, raw, asked)

    def _found(self, chave: str, raw: bytes, asked: Pergunta) -> Resposta:
        note = reading.nota(desembalar(reading.campo(reading.objeto(raw), "nfseXmlGZipB64")))
        events: list[Evento] = []
        for kind in dps.CANCELAMENTOS:
            status, told = self._get(asked, f"nfse/{chave}/eventos/{kind}/1", FOUND)
            if status == 200:
                events += reading.eventos(told, chave)
                break  # one is enough, and there is no second
        return Resposta(
            "consulta",
            "200" if note.chave == chave else "outra-nota",
            "NFS-e encontrada.",
            asked.bruto,
            chave=note.chave,
            protocolo=note.numero,
            dig_val=note.digest,
            quando=note.quando,
            eventos=tuple(events),
            sobre=note.dps,
            documento=note.xml,
        )

    def existe(self, identity: str, asked: Pergunta | None = None) -> bool:
        """Whether SEFIN made a note of this DPS (seed 004 §4.2): HEAD answers whoever has a certificate."""
        asking = asked or self._pergunta()
        return asking.chamar("HEAD", self._address(f"dps/{identity}"), None, JSON, FOUND)[0] == 200

    def chave_de(self, identity: str, asked: Pergunta | None = None) -> str | None:
        """The key of the note made of this DPS (seed 004 §4.2); None where it is not told, which proves nothing."""
        status, raw = self._get(asked or self._pergunta(), f"dps/{identity}", frozenset({200, 401, 403, 404}))
        chave = reading.campo(reading.objeto(raw), "chaveAcesso") if status == 200 else None
        return chave if chave_nfse(chave) else None

    def situacao(self, tp_emis: str = "1") -> Resposta:
        """Whether the service answers; it has no question of its own for that."""
        nobody = f"DPS{self.emitente.endereco.codigo_municipio}2{self.emitente.cnpj}{1:05d}{1:015d}"
        asked = self._pergunta()
        self.existe(nobody, asked)
        return Resposta("status", "200", "SEFIN Nacional responde.", asked.bruto)

    def _get(self, asked: Pergunta, path: str, answers: frozenset[int]) -> tuple[int, bytes]:
        return asked.chamar("GET", self._address(path), None, JSON, answers)

    def _address(self, path: str) -> str:
        return f"{BASES[self._ambiente] if self._base is None else self._base()}/{path}"
