"""São Paulo, simulated with its true behaviour: an RPS that is sent again cancels the first note and issues another.

Both signatures are really checked. Notes that were destroyed so stay in the books under the code 217, to be counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from xml.sax.saxutils import escape, unescape

from cryptography import x509
from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez_systems.fiscal.rules.deadlines import Prazos
from umavez_systems.fiscal.rules.identifiers import id_idempotencia_sp
from umavez_systems.fiscal.simulador.doors import PROXY, Requisicao, Saida
from umavez_systems.fiscal.simulador.ledger import Livros, now
from umavez_systems.fiscal.simulador.sefaz import BRASILIA
from umavez_systems.fiscal.wire import signing
from umavez_systems.fiscal.wire.paulistana.rps import MOST, NS, digest_de
from umavez_systems.problems import Problem

_XML = etree.XMLParser(resolve_entities=False, no_network=True)
LARGEST = 500_000
METHODS = {
    "envioRPS": ("sp/autorizacao", "RetornoEnvioRPS", "_send"),
    "envioLoteRPS": ("sp/autorizacao", "RetornoEnvioLoteRPS", "_send"),
    "consultaNFe": ("sp/consulta", "RetornoConsulta", "_by_key"),
    "consultaNFeEmitidas": ("sp/consulta", "RetornoConsulta", "_by_period"),
    "cancelamentoNFe": ("sp/evento", "RetornoCancelamentoNFe", "_cancel"),
}
MARKS = {"guia": "218", "presa": "338", "site": "216"}
"""What the control API may say of a note: in a payment slip, not cancellable, converted on the site."""


class Erro(Exception):
    """A refusal with the city's code."""

    def __init__(self, code: str, text: str, rps: Any = None) -> None:
        super().__init__(code)
        self.told = _told("Erro", code, text, rps)
        self.code = code


class Paulistana:
    """The city's issuer over the simulator's books."""

    proxy = Saida(200, PROXY, "text/html")

    def __init__(self, books: Livros, prazos: Prazos | None = None) -> None:
        self._books = books
        self._prazos = prazos or Prazos()

    def servico(self, call: Requisicao) -> str | None:
        """By the SOAP action."""
        found = METHODS.get(call.acao.rpartition("/")[2])
        return found[0] if found is not None and call.metodo == "POST" else None

    def atender(self, call: Requisicao) -> Saida:
        """The answer to a call, escaped in its envelope."""
        method = call.acao.rpartition("/")[2]
        service, tag, verb = METHODS[method]
        with self._books.lock:
            try:
                tree, cert = _opened(call)
                answer: Callable[..., tuple[str, bool, str, str]] = getattr(self, verb)
                inside, good, about, code = answer(tree, cert)
            except Erro as refusal:
                inside, good, about, code = refusal.told, False, "?", refusal.code
            self._books.note(service, about, code)
        head = f'<Cabecalho Versao="1"><Sucesso>{"true" if good else "false"}</Sucesso></Cabecalho>'
        said = f'<p1:{tag} xmlns:p1="{NS}">{head}{inside}</p1:{tag}>'
        return Saida(200, _envelope(f"{method[0].upper()}{method[1:]}", said), "text/xml; charset=utf-8")

    def _send(self, tree: Any, cert: x509.Certificate) -> tuple[str, bool, str, str]:
        """EnvioRPS and EnvioLoteRPS: all or nothing where `transacao`, each for itself otherwise."""
        sent = tree.findall("RPS")
        names = [_name(rps) for rps in sent]
        if not 1 <= len(sent) <= MOST or len(set(names)) != len(names):
            raise Erro("215", "O mesmo RPS vem duas vezes, ou ha RPS demais.")
        together = tree.findtext("Cabecalho/transacao") == "true"
        faults = {name: self._fault(rps, name, cert) for rps, name in zip(sent, names, strict=True)}
        bad = [fault for fault in faults.values() if fault is not None]
        if bad and (together or len(sent) == 1):
            raise bad[0]
        parts = [
            self._issue(rps, name) if (fault := faults[name]) is None else fault.told
            for rps, name in zip(sent, names, strict=True)
        ]
        code = "217" if any("<Codigo>217" in part for part in parts) else "200"
        return "".join(parts), True, names[0], code

    def _fault(self, rps: Any, name: str, cert: x509.Certificate) -> Erro | None:
        """Why an RPS is refused; nothing where it is not."""
        if not signing.conferir_texto(_signed_text(rps), rps.findtext("Assinatura") or "", cert):
            return Erro("1206", "Assinatura digital do RPS incorreta.", rps)
        if Decimal(rps.findtext("ValorServicos") or rps.findtext("ValorFinalCobrado") or "0") <= 0:
            return Erro("227", "O valor dos servicos deve ser maior que zero.", rps)
        mark = self._books.marked(name)
        if self._living(name) is not None and mark in ("guia", "presa"):
            return Erro(MARKS[mark], "RPS nao pode ser reenviado: a NFS-e anterior nao pode ser cancelada.", rps)
        return None

    def _issue(self, rps: Any, name: str) -> str:
        """A new note; the living one of the same RPS is cancelled for it, which is the danger of a re-send."""
        before, alert = self._living(name), ""
        if before is not None and self._books.marked(name) == "site":
            return _told("Alerta", "216", "RPS ja convertido no site.", rps) + _issued(before["chave"], rps)
        if before is not None:
            sql = "UPDATE documentos SET situacao = 'CANCELADO', codigo = '217' WHERE id = ?"
            self._books.rows(sql, (before["id"],))
            alert = _told("Alerta", "217", "RPS reenviado: a NFS-e anterior foi cancelada e outra foi emitida.", rps)
        number = int(self._books.rows("SELECT count(*) AS n FROM documentos WHERE autoridade = 'sp'")[0]["n"]) + 1
        ccm, serie, rps_number = name.split("_")
        chave = f"{ccm}_{number}_{number * 7919 % 10**8:08d}"
        price = Decimal(rps.findtext("ValorServicos") or rps.findtext("ValorFinalCobrado"))
        self._books.insert(
            "documentos",
            autoridade="sp",
            autorizador="SP",
            chave=chave,
            natural_key=name,
            cnpj=ccm,
            modelo="NFSE_SP",
            serie=int(serie) if serie.isdigit() else 0,
            numero=int(rps_number),
            situacao="AUTORIZADO",
            codigo="200",
            protocolo=str(number),
            dig_val=digest_de(rps.findtext("DataEmissao"), price),
            recebido_em=now(),
            xml=etree.tostring(rps),
        )
        return alert + _issued(chave, rps)

    def _living(self, name: str) -> dict[str, Any] | None:
        sql = "SELECT * FROM documentos WHERE natural_key = ? AND situacao = 'AUTORIZADO'"
        rows = self._books.rows(sql, (name,))
        return rows[0] if rows else None

    def _by_key(self, tree: Any, _cert: x509.Certificate) -> tuple[str, bool, str, str]:
        """ConsultaNFe: the newest note of each RPS key; an older one is not told."""
        keys = [_key_name(part) for part in tree.findall("Detalhe/ChaveRPS")]
        if not 1 <= len(keys) <= MOST:
            raise Erro("1101", "Informe de 1 a 50 chaves.")
        sql = "SELECT * FROM documentos WHERE natural_key = ? ORDER BY id DESC LIMIT 1"
        found = [row for name in keys for row in self._books.rows(sql, (name,))]
        if not found:
            return _told("Erro", "1106", "NFS-e nao encontrada."), False, keys[0], "1106"
        return "".join(map(_note, found)), True, keys[0], "200"

    def _by_period(self, tree: Any, _cert: x509.Certificate) -> tuple[str, bool, str, str]:
        """ConsultaNFeEmitidas: fifty to a page, at most 31 days; a page after the last is a success with none."""
        head = tree.find("Cabecalho")
        first, last = (date.fromisoformat(head.findtext(name)) for name in ("dtInicio", "dtFim"))
        ccm, page = f"{(head.findtext('Inscricao') or '').lstrip('0'):0>8}", int(head.findtext("NumeroPagina"))
        if not 0 <= (last - first).days < 31:
            raise Erro("1403", "O periodo passa de 31 dias.")
        begin = datetime(first.year, first.month, first.day, tzinfo=BRASILIA).timestamp() * 1000
        end = datetime(last.year, last.month, last.day, tzinfo=BRASILIA).timestamp() * 1000 + 24 * 3_600_000
        sql = (
            "SELECT * FROM documentos WHERE autoridade = 'sp' AND cnpj = ? AND recebido_em >= ? AND recebido_em < ?"
            " ORDER BY id LIMIT ? OFFSET ?"
        )
        rows = self._books.rows(sql, (ccm, begin, end, MOST, (page - 1) * MOST))
        return "".join(map(_note, rows)), True, f"periodo/{page}", "200"

    def _cancel(self, tree: Any, cert: x509.Certificate) -> tuple[str, bool, str, str]:
        key = tree.find("Detalhe/ChaveNFe")
        ccm, number = f"{key.findtext('InscricaoPrestador').lstrip('0'):0>8}", key.findtext("NumeroNFe")
        signed = tree.findtext("Detalhe/AssinaturaCancelamento") or ""
        if not signing.conferir_texto(f"{ccm}{int(number):012d}", signed, cert):
            raise Erro("1305", "Assinatura do cancelamento incorreta.")
        sql = "SELECT * FROM documentos WHERE autoridade = 'sp' AND cnpj = ? AND protocolo = ?"
        rows = self._books.rows(sql, (ccm, number))
        if not rows:
            raise Erro("1106", "NFS-e nao encontrada.")
        if rows[0]["situacao"] != "AUTORIZADO":
            return _told("Alerta", "1301", "NFS-e ja cancelada."), True, number, "1301"
        if now() - rows[0]["recebido_em"] > self._prazos.cancelar_nfse:
            raise Erro("324", "Passou o prazo de cancelamento.")
        self._books.rows("UPDATE documentos SET situacao = 'CANCELADO' WHERE id = ?", (rows[0]["id"],))
        return "", True, number, "200"


def _opened(call: Requisicao) -> tuple[Any, x509.Certificate]:
    """The message inside the envelope and who signed it. Raises Erro."""
    found = re.search(rb"<MensagemXML>(.*)</MensagemXML>", call.corpo, re.DOTALL)
    xml = unescape(found.group(1).decode()).encode() if found and len(call.corpo) <= LARGEST else b""
    try:
        cert = signing.conferir(xml, None)
        tree = etree.fromstring(xml, _XML)
    except (ValueError, etree.XMLSyntaxError) as error:
        raise Erro("1057", f"Assinatura da mensagem incorreta: {escape(str(error))[:100]}") from None
    sender = tree.findtext("Cabecalho/CPFCNPJRemetente/CNPJ") or ""
    if call.cnpj is None or call.cnpj[:8] != sender[:8]:
        raise Erro("1001", "O certificado nao e do remetente.")
    return tree, cert


def _signed_text(rps: Any) -> str:
    """The string that the taxpayer should have signed, made from the RPS's own fields."""

    def said(path: str) -> str:
        return rps.findtext(path) or ""

    taker = "1" if said("CPFCNPJTomador/CPF") else "2" if said("CPFCNPJTomador/CNPJ") else "3"
    price = said("ValorServicos") or said("ValorFinalCobrado")
    parts = (
        said("ChaveRPS/InscricaoPrestador").zfill(8 if said("ValorServicos") else 12),
        f"{said('ChaveRPS/SerieRPS'):<5}",
        f"{int(said('ChaveRPS/NumeroRPS') or 0):012d}",
        said("DataEmissao").replace("-", ""),
        said("TributacaoRPS"),
        said("StatusRPS"),
        "S" if said("ISSRetido") == "true" else "N",
        f"{int(Decimal(price or '0') * 100):015d}",
        f"{int(Decimal(said('ValorDeducoes') or '0') * 100):015d}",
        f"{said('CodigoServico'):0>5}",
        taker,
        f"{said('CPFCNPJTomador/CPF') or said('CPFCNPJTomador/CNPJ'):0>14}",
    )
    return "".join(parts)


def _name(rps: Any) -> str:
    return _key_name(rps.find("ChaveRPS"))


def _key_name(part: Any) -> str:
    try:
        return id_idempotencia_sp(
            part.findtext("InscricaoPrestador") or "", part.findtext("SerieRPS") or "", int(part.findtext("NumeroRPS"))
        )
    except (Problem, ValueError, TypeError, AttributeError):
        raise Erro("1102", "Chave de RPS invalida.") from None


def _issued(chave: str, rps: Any) -> str:
    key = etree.tostring(rps.find("ChaveRPS")).decode()
    return f"<ChaveNFeRPS>{_note_key(chave)}{key}</ChaveNFeRPS>"


def _note_key(chave: str) -> str:
    ccm, number, code = chave.split("_")
    inside = f"<InscricaoPrestador>{ccm}</InscricaoPrestador><NumeroNFe>{number}</NumeroNFe>"
    return f"<ChaveNFe>{inside}<CodigoVerificacao>{code}</CodigoVerificacao></ChaveNFe>"


def _note(row: dict[str, Any]) -> str:
    rps = etree.fromstring(row["xml"], _XML)
    key = etree.tostring(rps.find("ChaveRPS")).decode()
    price = rps.findtext("ValorServicos") or rps.findtext("ValorFinalCobrado")
    when = datetime.fromtimestamp(row["recebido_em"] / 1000, BRASILIA).isoformat(timespec="seconds")[:19]
    return (
        f"<NFe>{_note_key(row['chave'])}<DataEmissaoNFe>{when}</DataEmissaoNFe>{key}<TipoRPS>RPS</TipoRPS>"
        f"<DataEmissaoRPS>{rps.findtext('DataEmissao')}</DataEmissaoRPS>"
        f"<StatusNFe>{'N' if row['situacao'] == 'AUTORIZADO' else 'C'}</StatusNFe>"
        f"<ValorServicos>{price}</ValorServicos></NFe>"
    )


def _told(tag: str, code: str, text: str, rps: Any = None) -> str:
    """An error or an alert, with the RPS that it is about."""
    about = "" if rps is None else etree.tostring(rps.find("ChaveRPS"), with_tail=False).decode()
    return f"<{tag}><Codigo>{code}</Codigo><Descricao>{escape(text)}</Descricao>{about}</{tag}>"


def _envelope(method: str, said: str) -> bytes:
    inside = f'<{method}Response xmlns="{NS}"><RetornoXML>{escape(said)}</RetornoXML></{method}Response>'
    return (
        '<?xml version="1.0" encoding="utf-8"?><soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/">'
        f"<soap:Body>{inside}</soap:Body></soap:Envelope>"
    ).encode()
