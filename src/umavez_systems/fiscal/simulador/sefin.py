"""SEFIN Nacional, simulated: schema and signature really checked, E0014 for a repeated DPS, events beside the note.

It answers as production has been seen to, not as its OpenAPI file says: error fields with capitals, events wrapped
twice, no key for a stranger.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez import BoundedJson
from umavez_systems.fiscal.ports import SemResposta
from umavez_systems.fiscal.rules.deadlines import Prazos
from umavez_systems.fiscal.rules.identifiers import digito
from umavez_systems.fiscal.rules.orders import SERIE_PROPRIA
from umavez_systems.fiscal.simulador.doors import Requisicao, Saida
from umavez_systems.fiscal.simulador.ledger import Livros, now
from umavez_systems.fiscal.simulador.sefaz import BRASILIA
from umavez_systems.fiscal.wire import schemas, signing
from umavez_systems.fiscal.wire.nacional.dps import NS
from umavez_systems.fiscal.wire.nacional.packing import desembalar, embalar

_JSON = BoundedJson(size=5_000_000)
_XML = etree.XMLParser(resolve_entities=False, no_network=True)
ROUTES = (
    ("POST", r"nfse", "adn/autorizacao", "_post"),
    ("GET", r"nfse/(\w{50})", "adn/consulta", "_get"),
    ("HEAD", r"dps/(\w{45})", "adn/consulta", "_dps"),
    ("GET", r"dps/(\w{45})", "adn/consulta", "_dps"),
    ("POST", r"nfse/(\w{50})/eventos", "adn/evento", "_event"),
    ("GET", r"nfse/(\w{50})/eventos/(\d{6})/(\d+)", "adn/consulta", "_events"),
)
AHEAD = 5 * 60_000


class Erro(Exception):
    """A refusal with SEFIN's code."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code)
        self.code = code
        self.text = text


class Sefin:
    """The national issuer over the simulator's books."""

    proxy = Saida(400, b'{"erro":"Bad Gateway"}', "application/json")

    def __init__(self, books: Livros, prazos: Prazos | None = None) -> None:
        self._books = books
        self._prazos = prazos or Prazos()

    def servico(self, call: Requisicao) -> str | None:
        """By method and path."""
        found = _route(call)
        return None if found is None else found[0]

    def atender(self, call: Requisicao) -> Saida:
        """The answer to a call."""
        found = _route(call)
        if found is None:
            return _said(404, {})
        service, verb, parts = found
        with self._books.lock:
            try:
                answer: Callable[..., tuple[Saida, str, str]] = getattr(self, verb)
                said, about, code = answer(call, *parts)
            except Erro as refusal:
                said, about, code = _refused(refusal), "?", refusal.code
            self._books.note(service, about, code)
            return said

    def _post(self, call: Requisicao) -> tuple[Saida, str, str]:
        xml, tree = _signed(call, "dpsXmlGZipB64", "dps", "infDPS")
        info = tree[0]
        identity = info.get("Id")
        self._refuse(info, identity, call)
        if self._books.rows("SELECT 1 FROM documentos WHERE natural_key = ?", (identity,)):
            raise Erro("E0014", "Conjunto de serie, numero, codigo do municipio e inscricao federal ja existe.")
        replaced = info.findtext(f"{_q('subst')}/{_q('chSubstda')}")
        if replaced is not None and self._situation(replaced) != "AUTORIZADO":
            raise Erro("E0060", "A NFS-e substituida nao existe ou ja foi cancelada.")
        number, chave = self._key(info)
        note = _note(chave, number, info, xml)
        self._books.insert(
            "documentos",
            autoridade="adn",
            autorizador="SEFIN",
            chave=chave,
            natural_key=identity,
            cnpj=identity[11:25],
            modelo="NFSE_ADN",
            serie=int(identity[25:30]),
            numero=int(identity[30:]),
            situacao="AUTORIZADO",
            codigo="100",
            protocolo=str(number),
            dig_val=signing.digest_of(tree),
            recebido_em=now(),
            xml=note,
        )
        if replaced is not None:
            self._register(replaced, "105102", "Substituida", _event_xml(replaced, "105102", b""))
        body = {"idDps": identity, "chaveAcesso": chave, "nfseXmlGZipB64": embalar(note), "erro": []}
        return _said(201, body), identity, "201"

    def _refuse(self, info: Any, identity: str, call: Requisicao) -> None:
        """What is wrong with a DPS. Raises Erro."""

        def said(name: str) -> str:
            return info.findtext(_q(name)) or ""

        provider = info.findtext(f"{_q('prest')}/{_q('CNPJ')}") or ""
        whole = f"DPS{said('cLocEmi')}2{provider}{int(said('serie')):05d}{int(said('nDPS')):015d}"
        if identity != whole:
            raise Erro("E0004", "O identificador da DPS nao corresponde aos seus campos.")
        if call.cnpj is None or call.cnpj[:8] != provider[:8]:
            raise Erro("E0714", "O certificado nao e do prestador.")
        if said("tpAmb") != "2":
            raise Erro("E0006", "O ambiente informado diverge do ambiente de recebimento.")
        if datetime.fromisoformat(said("dhEmi")).timestamp() * 1000 > now() + AHEAD:
            raise Erro("E0008", "A data de emissao e posterior a do processamento.")
        if not 1 <= int(said("serie")) <= SERIE_PROPRIA:
            raise Erro("E0010", "A serie nao e de aplicativo proprio.")

    def _key(self, info: Any) -> tuple[int, str]:
        """The number and the key that the authority chooses."""
        cnpj = info.findtext(f"{_q('prest')}/{_q('CNPJ')}")
        sql = "SELECT count(*) AS n FROM documentos WHERE autoridade = 'adn' AND cnpj = ?"
        number = int(self._books.rows(sql, (cnpj,))[0]["n"]) + 1
        month = f"{datetime.now(BRASILIA):%y%m}"
        body = f"{info.findtext(_q('cLocEmi'))}22{cnpj}{number:013d}{month}{number * 7919 % 10**9:09d}"
        return number, body + digito(body)

    def _situation(self, chave: str) -> str | None:
        rows = self._books.rows("SELECT situacao FROM documentos WHERE autoridade = 'adn' AND chave = ?", (chave,))
        return rows[0]["situacao"] if rows else None

    def _get(self, _call: Requisicao, chave: str) -> tuple[Saida, str, str]:
        rows = self._books.rows("SELECT xml FROM documentos WHERE autoridade = 'adn' AND chave = ?", (chave,))
        if not rows:
            return _said(404, {"erro": {}}), chave, "404"
        body = {"chaveAcesso": chave, "nfseXmlGZipB64": embalar(rows[0]["xml"])}
        return _said(200, body), chave, "200"

    def _dps(self, call: Requisicao, identity: str) -> tuple[Saida, str, str]:
        rows = self._books.rows("SELECT chave, cnpj FROM documentos WHERE natural_key = ?", (identity,))
        if not rows:
            return _said(404, {}), identity, "404"
        if call.metodo == "HEAD":
            return _said(200, {}), identity, "200"
        if call.cnpj is None or call.cnpj[:8] != rows[0]["cnpj"][:8]:
            return _said(403, {}), identity, "403"
        return _said(200, {"idDps": identity, "chaveAcesso": rows[0]["chave"]}), identity, "200"

    def _event(self, call: Requisicao, chave: str) -> tuple[Saida, str, str]:
        xml, tree = _signed(call, "pedidoRegistroEventoXmlGZipB64", "pedido_evento", "infPedReg")
        info = tree[0]
        about, author = info.findtext(_q("chNFSe")), info.findtext(_q("CNPJAutor")) or ""
        detail = info.find(_q("e101101"))
        if about != chave or detail is None or info.get("Id") != f"PRE{chave}101101":
            raise Erro("E0831", "O pedido nao corresponde ao endereco, ou o evento nao e do contribuinte.")
        if call.cnpj is None or call.cnpj[:8] != author[:8] or chave[9:17] != author[:8]:
            raise Erro("E0714", "O certificado nao e do autor do evento.")
        situation = self._situation(chave)
        if situation is None:
            raise Erro("E0820", "A NFS-e nao existe.")
        if situation != "AUTORIZADO":
            raise Erro("E0840", "Ha evento vinculado a NFS-e que impede este registro.")
        since = self._books.rows("SELECT recebido_em FROM documentos WHERE chave = ?", (chave,))[0]["recebido_em"]
        if now() - since > self._prazos.cancelar_nfse:
            raise Erro("E0822", "Passou o prazo de cancelamento do municipio.")
        event = _event_xml(chave, "101101", xml)
        self._register(chave, "101101", detail.findtext(_q("xMotivo")) or "", event)
        return _said(201, {"eventoXmlGZipB64": embalar(event)}), chave, "201"

    def _register(self, chave: str, kind: str, text: str, xml: bytes) -> None:
        number = str(now())
        self._books.insert(
            "eventos",
            chave=chave,
            tipo=kind,
            sequencia=1,
            codigo="registrado",
            protocolo=number,
            texto=text,
            registrado_em=now(),
            xml=xml,
        )
        self._books.rows("UPDATE documentos SET situacao = 'CANCELADO' WHERE chave = ?", (chave,))

    def _events(self, _call: Requisicao, chave: str, kind: str, sequence: str) -> tuple[Saida, str, str]:
        sql = "SELECT xml FROM eventos WHERE chave = ? AND tipo = ? AND sequencia = ?"
        rows = self._books.rows(sql, (chave, kind, int(sequence)))
        if not rows:
            return _said(404, {"Erro": {"Descricao": "Evento nao encontrado"}}), chave, "404"
        twice = embalar(base64.b64encode(rows[0]["xml"]))
        return _said(200, {"eventos": [{"tipoEvento": kind, "arquivoXml": twice}]}), chave, "200"


def _route(call: Requisicao) -> tuple[str, str, tuple[str, ...]] | None:
    path = "/".join(call.caminho[2:])
    for method, pattern, service, verb in ROUTES:
        found = re.fullmatch(pattern, path, re.ASCII)
        if found is not None and method == call.metodo:
            return service, verb, found.groups()
    return None


def _signed(call: Requisicao, field: str, schema: str, tag: str) -> tuple[bytes, Any]:
    """The packed XML of a request, checked as the authority does before it looks at the content. Raises Erro."""
    try:
        body = _JSON.parse(call.corpo)
        xml = desembalar(body.get(field) if isinstance(body, dict) else None)
        tree = etree.fromstring(xml, _XML)
    except (ValueError, SemResposta, etree.XMLSyntaxError):
        raise Erro("E1229", "O conteudo nao pode ser aberto.") from None
    faults = schemas.faults(schema, tree)
    if faults:
        raise Erro("E1235", f"Falha no esquema XML: {faults[0][:200]}")
    try:
        signing.conferir(xml, _q(tag))
    except ValueError as error:
        raise Erro("E0714", f"Assinatura invalida: {error}") from None
    return xml, tree


def _note(chave: str, number: int, info: Any, dps: bytes) -> bytes:
    """The NFS-e around a DPS, whose bytes are left as they are."""
    city, price = info.findtext(_q("cLocEmi")), info.findtext(f"{_q('valores')}/{_q('vServPrest')}/{_q('vServ')}")
    cnpj = info.findtext(f"{_q('prest')}/{_q('CNPJ')}")
    where = f"<xLgr>Rua</xLgr><nro>1</nro><xBairro>Centro</xBairro><cMun>{city}</cMun><UF>SP</UF><CEP>01001000</CEP>"
    head = (
        f'<NFSe xmlns="{NS}" versao="1.01"><infNFSe Id="NFS{chave}"><xLocEmi>Cidade</xLocEmi>'
        f"<xLocPrestacao>Cidade</xLocPrestacao><nNFSe>{number}</nNFSe><cLocIncid>{city}</cLocIncid>"
        "<xLocIncid>Cidade</xLocIncid><xTribNac>Servico</xTribNac><verAplic>umavez-sim</verAplic><ambGer>2</ambGer>"
        f"<tpEmis>1</tpEmis><procEmi>1</procEmi><cStat>100</cStat><dhProc>{_moment()}</dhProc><nDFSe>{number}</nDFSe>"
        f"<emit><CNPJ>{cnpj}</CNPJ><xNome>Prestador</xNome><enderNac>{where}</enderNac></emit>"
        f"<valores><vLiq>{price}</vLiq></valores>"
    )
    return head.encode() + dps + b"</infNFSe></NFSe>"


def _event_xml(chave: str, kind: str, asked: bytes) -> bytes:
    """A registered event around its request; SEFIN's own events carry a request that it wrote itself."""
    if not asked:
        told = "<xDesc>Cancelamento de NFS-e por Substituição</xDesc><cMotivo>99</cMotivo>"
        own = f'<infPedReg Id="PRE{chave}{kind}"><chNFSe>{chave}</chNFSe><e{kind}>{told}</e{kind}></infPedReg>'
        asked = f'<pedRegEvento xmlns="{NS}" versao="1.01">{own}</pedRegEvento>'.encode()
    head = (
        f'<evento xmlns="{NS}" versao="1.01"><infEvento Id="EVT{chave}{kind}001"><verAplic>umavez-sim</verAplic>'
        f"<ambGer>2</ambGer><nSeqEvento>1</nSeqEvento><dhProc>{_moment()}</dhProc><nDFSe>{now()}</nDFSe>"
    )
    return head.encode() + asked + b"</infEvento></evento>"


def _refused(refusal: Erro) -> Saida:
    return _said(400, {"erros": [{"Codigo": refusal.code, "Descricao": refusal.text, "Complemento": None}]})


def _said(status: int, body: dict[str, Any]) -> Saida:
    return Saida(status, json.dumps(body).encode(), "application/json")


def _moment() -> str:
    return datetime.now(BRASILIA).isoformat(timespec="seconds")


def _q(name: str) -> str:
    return f"{{{NS}}}{name}"
