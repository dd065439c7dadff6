"""SEFAZ, simulated: schema and signature really checked, the official decision table really applied."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from xml.sax.saxutils import escape

from cryptography import x509
from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez_systems.fiscal.rules.deadlines import Prazos
from umavez_systems.fiscal.rules.identifiers import Chave, cnf_valido
from umavez_systems.fiscal.simulador.ledger import HOUR, Livros, now
from umavez_systems.fiscal.wire import schemas, signing
from umavez_systems.fiscal.wire.nfe import NS
from umavez_systems.problems import Problem

LIMITS = {"consulta": 10, "autorizacao": 30, "evento": 20, "inutilizacao": 20}
"""Calls about one thing in an hour: queries of a key, equal refusals of a note, an event or a voiding (656)."""
EVENTOS = {"110111": "cancelamento", "110112": "substituicao", "110110": "correcao", "110140": "epec"}
BRASILIA = timezone(timedelta(hours=-3))
LATE = 7 * 24 * HOUR
MOTIVOS = {
    "100": "Autorizado o uso da NF-e",
    "101": "Cancelamento de NF-e homologado",
    "102": "Inutilizacao de numero homologado",
    "107": "Servico em Operacao",
    "135": "Evento registrado e vinculado a NF-e",
    "136": "Evento registrado, mas nao vinculado a NF-e",
    "150": "Autorizado o uso da NF-e, autorizacao fora de prazo",
    "204": "Duplicidade de NF-e",
    "217": "NF-e nao consta na base de dados da SEFAZ",
    "539": "Duplicidade de NF-e, com diferenca na Chave de Acesso",
    "573": "Duplicidade de Evento",
    "656": "Consumo Indevido",
}
IRREGULAR = "irregular"
"""The mark of a buyer, by CPF or CNPJ, whose notes are refused (302, a refusal since NT 2024.001)."""
_XML = etree.XMLParser(resolve_entities=False, no_network=True)


@dataclass(frozen=True)
class Chamada:
    """One call: which authoriser it was addressed to, the message inside the envelope, and whose certificate came."""

    autorizador: str
    servico: str
    xml: bytes
    cnpj: str | None


class Recusa(Exception):
    """A refusal with its code."""

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.reason = reason or MOTIVOS.get(code, f"Rejeicao {code}")


class Sefaz:
    """Every authoriser of NF-e and NFC-e over one set of books."""

    def __init__(self, books: Livros, prazos: Prazos | None = None) -> None:
        self._books = books
        self._prazos = prazos or Prazos()

    def atender(self, call: Chamada) -> bytes:
        """The layout's answer to a call."""
        with self._books.lock:
            verb = getattr(self, f"_{call.servico}")
            answer: bytes = verb(call)
            return answer

    def _autorizacao(self, call: Chamada) -> bytes:
        note = _between(call.xml, "NFe")
        try:
            tree, chave, cert = self._read(note, "nfe", "infNFe", call)
        except Recusa as refusal:
            self._books.note("autorizacao", "?", refusal.code)
            return _ret("retEnviNFe", refusal.code, refusal.reason)
        del cert
        text = str(chave)
        digest = signing.digest_of(tree)
        try:
            code = self._admit(text, chave, tree, call)
            protocol = self._protocol()
            self._books.insert(
                "documentos",
                autoridade="sefaz",
                autorizador=call.autorizador,
                chave=text,
                natural_key=chave.natural("x"),
                cnpj=chave.cnpj,
                modelo=chave.mod,
                serie=chave.serie,
                numero=chave.nnf,
                situacao="AUTORIZADO",
                codigo=code,
                protocolo=protocol,
                dig_val=digest,
                recebido_em=now(),
                xml=note,
            )
            inner = _prot(text, code, protocol, digest)
        except Recusa as refusal:
            code = self._counted("autorizacao", text, refusal.code)
            inner = _prot(text, code, None, digest, refusal.reason)
        self._books.note("autorizacao", text, code)
        return _ret("retEnviNFe", "104", "Lote processado", f"<dhRecbto>{_moment()}</dhRecbto>{inner}")

    def _read(self, xml: bytes, schema: str, tag: str, call: Chamada) -> tuple[Any, Chave, x509.Certificate]:
        """A signed document, checked as the authority does before looking at its content."""
        tree = self._signed(xml, schema)
        try:
            cert = signing.conferir(xml, f"{{{NS}}}{tag}")
            chave = Chave.lida(tree[0].get("Id")[3:])
        except (ValueError, Problem) as error:
            raise Recusa("297", f"Assinatura difere do calculado: {error}") from None
        if call.cnpj is None or call.cnpj[:8] != chave.cnpj[:8]:
            raise Recusa("213", "CNPJ-Base do Emitente difere do CNPJ-Base do Certificado Digital")
        return tree, chave, cert

    def _signed(self, xml: bytes, schema: str) -> Any:
        try:
            tree = etree.fromstring(xml, _XML)
        except etree.XMLSyntaxError:
            raise Recusa("243", "XML Mal Formado") from None
        faults = schemas.faults(schema, tree)
        if faults:
            raise Recusa("215", f"Falha no schema XML: {faults[0][:200]}")
        return tree

    def _admit(self, text: str, chave: Chave, tree: Any, call: Chamada) -> str:
        """The code with which a note is authorised. Raises Recusa."""
        self._refuse_fields(chave, tree)
        same = self._books.rows("SELECT * FROM documentos WHERE natural_key = ?", (chave.natural("x"),))
        for row in same:
            if row["chave"] == text:
                code = {"AUTORIZADO": "204", "CANCELADO": "218"}[row["situacao"]]
                raise Recusa(code, f"{MOTIVOS.get(code, 'NF-e ja cancelada')} [nRec:{row['protocolo']}]")
            if chave.mod == "65" or row["autorizador"] == call.autorizador:
                raise Recusa("539", f"{MOTIVOS['539']} [chNFe: {row['chave']}][nProt:{row['protocolo']}]")
        if self._voided(chave.cnpj, chave.mod, chave.serie, chave.nnf, chave.nnf):
            raise Recusa("206", "NF-e ja esta inutilizada na Base de dados da SEFAZ")
        self._refuse_epec(chave, text)
        buyer = tree.find(f".//{{{NS}}}dest")
        if buyer is not None and self._books.marked(buyer[0].text) == IRREGULAR:
            raise Recusa("302", "Irregularidade fiscal do destinatario")
        age = now() - _millis(tree.findtext(f".//{{{NS}}}dhEmi"))
        return "150" if chave.tp_emis == "9" and age > self._prazos.offline else "100"

    def _refuse_fields(self, chave: Chave, tree: Any) -> None:
        def said(name: str) -> str:
            return tree.findtext(f".//{{{NS}}}ide/{{{NS}}}{name}") or ""

        parts = (said("cUF"), said("cNF"), said("mod"), said("serie"), said("nNF"), said("tpEmis"), said("cDV"))
        keyed = (chave.cuf, chave.cnf, chave.mod, str(chave.serie), str(chave.nnf), chave.tp_emis, chave.dv)
        emitted = said("dhEmi")
        if parts != keyed or emitted[2:4] + emitted[5:7] != chave.aamm:
            raise Recusa("502", "Erro na Chave de Acesso - Campo Id nao corresponde a concatenacao dos campos")
        if not cnf_valido(chave.cnf, chave.nnf):
            raise Recusa("897", "Codigo numerico em formato invalido")
        if said("tpAmb") != "2":
            raise Recusa("252", "Ambiente informado diverge do Ambiente de recebimento")
        age = now() - _millis(emitted)
        if age < -5 * 60_000:
            raise Recusa("703", "Data-Hora de Emissao posterior ao horario de recebimento")
        if age > LATE and chave.tp_emis == "1":
            raise Recusa("228", "Data de Emissao muito atrasada")

    def _refuse_epec(self, chave: Chave, text: str) -> None:
        """A note whose number has an EPEC must be the very one that the EPEC announced."""
        if chave.tp_emis == "4" and not self._books.rows(
            "SELECT 1 FROM eventos WHERE chave = ? AND tipo = '110140'", (text,)
        ):
            raise Recusa("691", "Chave de Acesso da NF-e diverge da Chave de Acesso do EPEC")

    def _consulta(self, call: Chamada) -> bytes:
        tree = etree.fromstring(call.xml, _XML)
        text = tree.findtext(f"{{{NS}}}chNFe") or ""
        code, inside, reason = self._found(text, call)
        self._books.note("consulta", text, code)
        head = f"<cUF>{text[:2]}</cUF><dhRecbto>{_moment()}</dhRecbto><chNFe>{escape(text)}</chNFe>"
        return _ret("retConsSitNFe", code, reason or MOTIVOS.get(code, code), head + inside, uf=False)

    def _found(self, text: str, call: Chamada) -> tuple[str, str, str]:
        if self._books.calls("consulta", text, now() - self._books.hour) >= LIMITS["consulta"]:
            return "656", "", ""
        try:
            chave = Chave.lida(text)
        except Problem:
            return "236", "", "Chave de Acesso com digito verificador invalido"
        rows = self._books.rows("SELECT * FROM documentos WHERE natural_key = ?", (chave.natural("x"),))
        for row in rows:
            if row["chave"] == text and row["autorizador"] == call.autorizador:
                code = row["codigo"] if row["situacao"] == "AUTORIZADO" else "101"
                return code, _prot(text, row["codigo"], row["protocolo"], row["dig_val"]) + self._events(text), ""
        others = [row["chave"] for row in rows if row["autorizador"] == call.autorizador]
        if not others:
            return "217", "", ""
        other = Chave.lida(others[0])
        code = "561" if other.aamm != chave.aamm else "562" if other.cnf != chave.cnf else "613"
        return code, "", f"Rejeicao: outra chave tem este numero [chNFe: {others[0]}]"

    def _events(self, chave: str) -> str:
        shown = []
        for row in self._books.rows("SELECT * FROM eventos WHERE chave = ? ORDER BY id", (chave,)):
            answered = _event_answer(chave, row["tipo"], row["sequencia"], row["codigo"], row["protocolo"])
            shown.append(f'<procEventoNFe versao="1.00">{row["xml"].decode()}{answered}</procEventoNFe>')
        return "".join(shown)

    def _evento(self, call: Chamada) -> bytes:
        xml = _between(call.xml, "evento")
        kind, chave, sequence, code, protocol, reason = "", "", 1, "", None, ""
        try:
            kind, chave, sequence, text = self._event(xml, call)
            code = self._register(kind, chave, sequence)
            protocol = self._protocol()
            self._books.insert(
                "eventos",
                chave=chave,
                tipo=kind,
                sequencia=sequence,
                codigo=code,
                protocolo=protocol,
                texto=text,
                registrado_em=now(),
                xml=xml,
            )
            if kind in ("110111", "110112"):
                self._books.rows("UPDATE documentos SET situacao = 'CANCELADO' WHERE chave = ?", (chave,))
        except Recusa as refusal:
            code, reason = self._counted("evento", f"{kind}{chave}{sequence}", refusal.code), refusal.reason
        self._books.note("evento", f"{kind}{chave}{sequence}", code)
        inner = _event_answer(chave, kind, sequence, code, protocol, reason)
        return _ret("retEnvEvento", "128", "Lote de Evento Processado", inner, event=True)

    def _event(self, xml: bytes, call: Chamada) -> tuple[str, str, int, str]:
        found = re.search(rb"<tpEvento>(\d{6})</tpEvento>", xml)
        kind = found.group(1).decode() if found else ""
        schema = EVENTOS.get(kind)
        if schema is None:
            raise Recusa("491", "O tpEvento informado invalido")
        tree = self._signed(xml, schema)
        info = tree[0]
        try:
            signing.conferir(xml, f"{{{NS}}}infEvento")
        except ValueError as error:
            raise Recusa("297", f"Assinatura difere do calculado: {error}") from None
        chave, sequence = info.findtext(f"{{{NS}}}chNFe") or "", int(info.findtext(f"{{{NS}}}nSeqEvento") or "0")
        if info.get("Id") != f"ID{kind}{chave}{sequence:02d}":
            raise Recusa("572", "Erro Atributo ID do evento nao corresponde a concatenacao dos campos")
        if call.cnpj is None or call.cnpj[:8] != chave[6:14]:
            raise Recusa("213", "CNPJ-Base do Emitente difere do CNPJ-Base do Certificado Digital")
        detail = info.find(f"{{{NS}}}detEvento")
        if kind == "110112":
            self._refuse_substitute(detail.findtext(f"{{{NS}}}chNFeRef") or "", chave)
        text = detail.findtext(f"{{{NS}}}xCorrecao") or detail.findtext(f"{{{NS}}}xJust") or ""
        return kind, chave, sequence, text

    def _refuse_substitute(self, other: str, chave: str) -> None:
        """The note that takes a cancelled one's place must be there, and be another."""
        rows = self._books.rows("SELECT situacao FROM documentos WHERE chave = ?", (other,))
        if other == chave or [row["situacao"] for row in rows] != ["AUTORIZADO"]:
            raise Recusa("908", "NFC-e substituta inexistente ou nao autorizada")

    def _register(self, kind: str, chave: str, sequence: int) -> str:
        """The code with which an event is registered. Raises Recusa."""
        same = "SELECT 1 FROM eventos WHERE chave = ? AND tipo = ? AND sequencia = ?"
        if self._books.rows(same, (chave, kind, sequence)):
            raise Recusa("573", MOTIVOS["573"])
        found = self._books.rows("SELECT * FROM documentos WHERE chave = ?", (chave,))
        if kind == "110140":
            return "136"
        if not found:
            raise Recusa("494", "Chave de Acesso inexistente")
        note = found[0]
        if note["situacao"] != "AUTORIZADO":
            raise Recusa("580", "Evento exige NF-e autorizada")
        age = now() - note["recebido_em"]
        if kind == "110111" and age > self._prazos.cancelar(note["modelo"]):
            raise Recusa("501", "Prazo de cancelamento superior ao previsto na Legislacao")
        if sequence > 20:
            raise Recusa("594", "O numero de sequencia do evento e maior que o permitido")
        return "135"

    def _inutilizacao(self, call: Chamada) -> bytes:
        xml = _between(call.xml, "inutNFe")
        identity, protocol, reason = "?", None, ""
        try:
            tree = self._signed(xml, "inutilizacao")
            info = tree[0]
            identity = info.get("Id")
            try:
                signing.conferir(xml, f"{{{NS}}}infInut")
            except ValueError as error:
                raise Recusa("297", f"Assinatura difere do calculado: {error}") from None
            code, protocol = self._void(identity, info, call)
        except Recusa as refusal:
            code, reason = self._counted("inutilizacao", identity, refusal.code), refusal.reason
        self._books.note("inutilizacao", identity, code)
        body = _codes(code, reason) + "<cUF>35</cUF>" + f"<dhRecbto>{_moment()}</dhRecbto>"
        body += f"<nProt>{protocol}</nProt>" if protocol else ""
        return f'<retInutNFe xmlns="{NS}" versao="4.00"><infInut>{body}</infInut></retInutNFe>'.encode()

    def _void(self, identity: str, info: Any, call: Chamada) -> tuple[str, str]:
        def said(name: str) -> str:
            return info.findtext(f"{{{NS}}}{name}") or ""

        cnpj, mod, serie = said("CNPJ"), said("mod"), int(said("serie"))
        first, last = int(said("nNFIni")), int(said("nNFFin"))
        if call.cnpj is None or call.cnpj[:8] != cnpj[:8]:
            raise Recusa("213", "CNPJ-Base do Emitente difere do CNPJ-Base do Certificado Digital")
        before = self._books.rows("SELECT * FROM inutilizacoes WHERE identidade = ?", (identity,))
        if before:
            return "563", before[0]["protocolo"]
        used = "SELECT 1 FROM documentos WHERE cnpj = ? AND modelo = ? AND serie = ? AND numero BETWEEN ? AND ?"
        if self._books.rows(used, (cnpj, mod, serie, first, last)):
            raise Recusa("241", "Um numero da faixa ja foi utilizado")
        if self._voided(cnpj, mod, serie, first, last):
            raise Recusa("256", "Uma NF-e da faixa ja esta inutilizada")
        protocol = self._protocol()
        values = {"cnpj": cnpj, "modelo": mod, "serie": serie, "primeiro": first, "ultimo": last}
        self._books.insert("inutilizacoes", identidade=identity, protocolo=protocol, **values)
        return "102", protocol

    def _voided(self, cnpj: str, mod: str, serie: int, first: int, last: int) -> bool:
        sql = (
            "SELECT 1 FROM inutilizacoes WHERE cnpj = ? AND modelo = ? AND serie = ? AND primeiro <= ? AND ultimo >= ?"
        )
        return bool(self._books.rows(sql, (cnpj, mod, serie, last, first)))

    def _status(self, call: Chamada) -> bytes:
        self._books.note("status", call.autorizador, "107")
        return _ret(
            "retConsStatServ", "107", MOTIVOS["107"], f"<cUF>35</cUF><dhRecbto>{_moment()}</dhRecbto>", uf=False
        )

    def _counted(self, servico: str, alvo: str, code: str) -> str:
        """656 in place of a refusal that came too often."""
        return "656" if self._books.calls(servico, alvo, now() - self._books.hour) >= LIMITS[servico] else code

    def _protocol(self) -> str:
        number = self._books.rows(
            "SELECT (SELECT count(*) FROM documentos) + (SELECT count(*) FROM eventos)"
            " + (SELECT count(*) FROM inutilizacoes) AS n"
        )[0]["n"]
        return f"135{datetime.now(UTC):%y}{number + 1:010d}"


def _between(xml: bytes, tag: str) -> bytes:
    """The signed element as it was sent: parsing and writing it again would change what was signed."""
    found = re.search(rb"<%s[ >].*</%s>" % (tag.encode(), tag.encode()), xml, re.DOTALL)
    return found.group() if found else b""


def _codes(code: str, reason: str) -> str:
    said = escape(reason or MOTIVOS.get(code, f"Codigo {code}"))[:255]
    return f"<tpAmb>2</tpAmb><verAplic>umavez-sim</verAplic><cStat>{code}</cStat><xMotivo>{said}</xMotivo>"


def _ret(tag: str, code: str, reason: str, inside: str = "", *, event: bool = False, uf: bool = True) -> bytes:
    version = "1.00" if event else "4.00"
    head = "<idLote>1</idLote>" if event else ""
    area = "<cOrgao>35</cOrgao>" if event else "<cUF>35</cUF>" if uf else ""
    said = _codes(code, reason)
    if event:
        said = said.replace("<cStat>", f"{area}<cStat>")
        area = ""
    return f'<{tag} xmlns="{NS}" versao="{version}">{head}{said}{area}{inside}</{tag}>'.encode()


def _prot(chave: str, code: str, protocol: str | None, digest: str, reason: str = "") -> str:
    said = _codes(code, reason)
    cut = said.index("<cStat>")
    number = f"<nProt>{protocol}</nProt>" if protocol else ""
    middle = f"<chNFe>{chave}</chNFe><dhRecbto>{_moment()}</dhRecbto>{number}<digVal>{escape(digest)}</digVal>"
    return f'<protNFe versao="4.00"><infProt>{said[:cut]}{middle}{said[cut:]}</infProt></protNFe>'


def _event_answer(chave: str, kind: str, sequence: int, code: str, protocol: str | None, reason: str = "") -> str:
    said = _codes(code, reason).replace("<cStat>", "<cOrgao>35</cOrgao><cStat>")
    about = f"<chNFe>{chave}</chNFe><tpEvento>{kind}</tpEvento><nSeqEvento>{sequence}</nSeqEvento>" if chave else ""
    number = f"<nProt>{protocol}</nProt>" if protocol else ""
    body = f"{said}{about}<dhRegEvento>{_moment()}</dhRegEvento>{number}"
    return f'<retEvento versao="1.00"><infEvento>{body}</infEvento></retEvento>'


def _moment() -> str:
    return datetime.now(BRASILIA).isoformat(timespec="seconds")


def _millis(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
