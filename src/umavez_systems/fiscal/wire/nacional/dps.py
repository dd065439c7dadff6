"""DPS and event requests of the national NFS-e: from a numbered order to the official layout, by nfelib's bindings."""

from __future__ import annotations

from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # ships no type information
from nfelib.nfse.bindings.v1_0.dps_v1_01 import Dps
from nfelib.nfse.bindings.v1_0.ped_reg_evento_v1_01 import PedRegEvento
from xsdata.exceptions import ParserError
from xsdata.formats.dataclass.context import XmlContext
from xsdata.formats.dataclass.parsers import DictDecoder
from xsdata.formats.dataclass.parsers.config import ParserConfig
from xsdata.formats.dataclass.serializers import TreeSerializer

from umavez_systems.fiscal.domain import Destinatario, Servico
from umavez_systems.fiscal.ports import Numerado
from umavez_systems.fiscal.rules.identifiers import chave_nfse, id_dps, id_idempotencia_adn, invalid
from umavez_systems.fiscal.wire.nfe import Emitente

NS = "http://www.sped.fazenda.gov.br/nfse"
VERSION = "1.01"
CANCELAMENTO = "101101"
CANCELAMENTOS = (CANCELAMENTO, "105102", "105104", "305101")
"""The events that end an invoice: the taxpayer's, by substitution, after fiscal analysis, by the city's office."""
_CONTEXT = XmlContext()
_SERIALIZER = TreeSerializer(context=_CONTEXT)
_DECODER = DictDecoder(context=_CONTEXT, config=ParserConfig(fail_on_converter_warnings=True))
SIMPLES = {"1": "3", "2": "3", "3": "1", "4": "2"}
"""opSimpNac for each CRT: small companies 3, others 1, single entrepreneurs 2."""


def identidade(emitente: Emitente, numerado: Numerado) -> str:
    """The seed's identifier; every part of it was fixed when the number was taken."""
    order = numerado.pedido
    return id_idempotencia_adn(emitente.endereco.codigo_municipio, emitente.cnpj, order.serie, numerado.numero)


def arvore(emitente: Emitente, numerado: Numerado, ambiente: str) -> Any:
    """The unsigned DPS as an lxml tree. Raises 422 problems."""
    order = numerado.pedido
    service = order.servico
    if service is None:
        raise invalid("servico: obrigatório na NFS-e.")
    city = emitente.endereco.codigo_municipio
    body = {
        "tpAmb": ambiente,
        "dhEmi": numerado.emissao,
        "verAplic": "umavez",
        "serie": str(order.serie),
        "nDPS": str(numerado.numero),
        "dCompet": numerado.emissao[:10],
        "tpEmit": "1",
        "cLocEmi": city,
        "subst": _replaced(service),
        "prest": _provider(emitente),
        "toma": _taker(order.destinatario),
        "serv": {
            "locPrest": {"cLocPrestacao": city},
            "cServ": {"cTribNac": service.codigo, "xDescServ": service.descricao},
        },
        "valores": _values(service, emitente),
        "Id": id_dps(identidade(emitente, numerado)),
    }
    return _tree({"versao": VERSION, "infDPS": _present(body)}, Dps)


def _provider(emitente: Emitente) -> dict[str, Any]:
    simples = SIMPLES[emitente.crt]
    regime = {"opSimpNac": simples, "regApTribSN": "1" if simples == "3" else None, "regEspTrib": "0"}
    return {"CNPJ": emitente.cnpj, "IM": emitente.im, "regTrib": regime}


def _replaced(service: Servico) -> dict[str, str] | None:
    if service.substitui is None:
        return None
    if not chave_nfse(service.substitui):
        raise invalid("servico.substitui: chave de NFS-e com 50 posições.")
    return {"chSubstda": service.substitui, "cMotivo": "99", "xMotivo": "Substituida por nota corrigida"}


def _taker(buyer: Destinatario | None) -> dict[str, Any] | None:
    if buyer is None:
        return None
    where = buyer.endereco
    place = None
    if where is not None:
        place = {
            "endNac": {"cMun": where.codigo_municipio, "CEP": where.cep},
            "xLgr": where.logradouro,
            "nro": where.numero,
            "xBairro": where.bairro,
        }
    return {"CNPJ": buyer.cnpj, "CPF": buyer.cpf, "xNome": buyer.nome, "end": place}


def _values(service: Servico, emitente: Emitente) -> dict[str, Any]:
    local = {
        "tribISSQN": service.tributacao or "1",
        "tpRetISSQN": "2" if service.iss_retido else "1",
        "pAliq": None if service.aliquota is None else f"{service.aliquota:.2f}",
    }
    known = {"pTotTribSN": "0.00"} if SIMPLES[emitente.crt] == "3" else {"indTotTrib": "0"}
    return {"vServPrest": {"vServ": f"{service.valor:.2f}"}, "trib": {"tribMun": local, "totTrib": known}}


def pedido_de_cancelamento(
    identity: str, chave: str, emitente: Emitente, ambiente: str, quando: str, justificativa: str
) -> Any:
    """The unsigned request of event 101101."""
    told = {"xDesc": "Cancelamento de NFS-e", "cMotivo": "9", "xMotivo": justificativa}
    body = {
        "tpAmb": ambiente,
        "verAplic": "umavez",
        "dhEvento": quando,
        "CNPJAutor": emitente.cnpj,
        "chNFSe": chave,
        "e101101": told,
        "Id": identity,
    }
    return _tree({"versao": VERSION, "infPedReg": body}, PedRegEvento)


def _present(data: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that are not there, at every depth."""
    return {
        name: _present(value) if isinstance(value, dict) else value for name, value in data.items() if value is not None
    }


def _tree(data: dict[str, Any], kind: type[Any]) -> Any:
    try:
        made = _SERIALIZER.render(_DECODER.decode(_present(data), kind), ns_map={None: NS})
    except (ParserError, ValueError, TypeError):
        raise invalid("servico: um campo não existe no leiaute oficial.") from None
    root = made.getroot() if hasattr(made, "getroot") else made
    return etree.fromstring(etree.tostring(root))
