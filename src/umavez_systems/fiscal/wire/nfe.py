"""NF-e and NFC-e: from a numbered order to the tree of the official layout, by nfelib's bindings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

from nfelib.nfe.bindings.v4_0 import leiaute_nfe_v4_00 as layout
from nfelib.nfe.bindings.v4_0.nfe_v4_00 import Nfe
from xsdata.exceptions import ParserError
from xsdata.formats.dataclass.context import XmlContext
from xsdata.formats.dataclass.parsers import DictDecoder
from xsdata.formats.dataclass.parsers.config import ParserConfig

from umavez_systems.fiscal.domain import Destinatario, Endereco, Item, Pagamento, Tipo
from umavez_systems.fiscal.ports import Numerado
from umavez_systems.fiscal.rules.identifiers import UFS, Chave, invalid
from umavez_systems.fiscal.wire import taxes, writing

NS = "http://www.portalfiscal.inf.br/nfe"
VERSION = "4.00"
SEM_VALOR = "EMITIDA EM AMBIENTE DE HOMOLOGACAO - SEM VALOR FISCAL"
_DECODER = DictDecoder(context=XmlContext(), config=ParserConfig(fail_on_converter_warnings=True))
_Inf = layout.Tnfe.InfNfe


@dataclass(frozen=True, slots=True)
class Emitente:
    """Who sells. `csc`: the code and its number for the QR code's version 2; without one version 3 is used."""

    cnpj: str
    nome: str
    ie: str
    uf: str
    endereco: Endereco
    crt: str = "1"
    csc: str | None = None
    csc_id: str | None = None
    im: str | None = None
    """Municipal registration, for the national NFS-e."""
    ccm: str | None = None
    """São Paulo's registration, without padding."""
    layout_sp: str = "1"
    emissor_nacional: bool = True
    """Whether the city's invoices are issued by SEFIN Nacional; where not, its "not found" proves nothing."""


def chave_de(emitente: Emitente, numerado: Numerado) -> Chave:
    """The document's access key; every part of it was fixed when the number was taken."""
    order = numerado.pedido
    month = numerado.emissao[2:4] + numerado.emissao[5:7]
    return Chave(
        UFS[emitente.uf], month, emitente.cnpj, order.tipo.modelo, order.serie, numerado.numero, numerado.tp_emis,
        numerado.cnf,
    )  # fmt: skip


def arvore(emitente: Emitente, numerado: Numerado, ambiente: str) -> Any:
    """The unsigned document as an lxml tree. `ambiente`: 1 production, 2 homologation. Raises 422 problems."""
    order = numerado.pedido
    chave = chave_de(emitente, numerado)
    item_taxes = [taxes.impostos(item) for item in order.itens]
    found = taxes.totais(order.total, item_taxes)
    body = _Inf(
        versao=VERSION,
        Id=f"NFe{chave}",
        ide=_ide(emitente, numerado, chave, ambiente),
        emit=_emit(emitente),
        dest=_dest(order.destinatario, order.tipo, ambiente),
        det=[
            _det(place, item, taxed, order.tipo, ambiente)
            for place, (item, taxed) in enumerate(zip(order.itens, item_taxes, strict=True), 1)
        ],
        total=_total(found),
        transp=_Inf.Transp(modFrete=_enum(_Inf.Transp, "modFrete", "9")),
        pag=_pag(order.pagamentos, found.nota),
    )
    return writing.arvore(Nfe(infNFe=body), NS)


def _ide(emitente: Emitente, numerado: Numerado, chave: Chave, ambiente: str) -> Any:
    order = numerado.pedido
    consumer = order.tipo is Tipo.NFCE
    buyer = order.destinatario
    # What is sold at a counter stays in its state, wherever the buyer lives: an NFC-e that says otherwise gets 707.
    away = not consumer and buyer is not None and buyer.endereco is not None and buyer.endereco.uf != emitente.uf
    kind = _Inf.Ide
    return kind(
        cUF=_enum(kind, "cUF", chave.cuf),
        cNF=chave.cnf,
        natOp=order.natureza,
        mod=_enum(kind, "mod", chave.mod),
        serie=str(chave.serie),
        nNF=str(chave.nnf),
        dhEmi=numerado.emissao,
        tpNF=_enum(kind, "tpNF", "1"),
        idDest=_enum(kind, "idDest", "2" if away else "1"),
        cMunFG=emitente.endereco.codigo_municipio,
        tpImp=_enum(kind, "tpImp", "4" if consumer else "1"),
        tpEmis=_enum(kind, "tpEmis", chave.tp_emis),
        cDV=chave.dv,
        tpAmb=_enum(kind, "tpAmb", ambiente),
        finNFe=_enum(kind, "finNFe", "1"),
        indFinal=_enum(kind, "indFinal", "1" if consumer or buyer is None or not buyer.ie else "0"),
        indPres=_enum(kind, "indPres", "1"),
        procEmi=_enum(kind, "procEmi", "0"),
        verProc="umavez",
        dhCont=numerado.contingencia,
        xJust=order.justificativa if numerado.contingencia else None,
    )


def _emit(emitente: Emitente) -> Any:
    where = emitente.endereco
    return _Inf.Emit(
        CNPJ=emitente.cnpj,
        xNome=emitente.nome,
        enderEmit=layout.TenderEmi(
            xLgr=where.logradouro,
            nro=where.numero,
            xBairro=where.bairro,
            cMun=where.codigo_municipio,
            xMun=where.municipio,
            UF=_enum(layout.TenderEmi, "UF", where.uf),
            CEP=where.cep,
            cPais=_enum(layout.TenderEmi, "cPais", "1058"),
            xPais=_enum(layout.TenderEmi, "xPais", "BRASIL"),
        ),
        IE=emitente.ie,
        CRT=_enum(_Inf.Emit, "CRT", emitente.crt),
    )


def _dest(buyer: Destinatario | None, tipo: Tipo, ambiente: str) -> Any:
    if buyer is None:
        if tipo is Tipo.NFE:
            raise invalid("destinatario: obrigatório na NF-e.")
        return None
    where = buyer.endereco
    return _Inf.Dest(
        CNPJ=buyer.cnpj,
        CPF=buyer.cpf,
        xNome=f"NF-E {SEM_VALOR}" if ambiente == "2" else buyer.nome,
        enderDest=None
        if where is None
        else layout.Tendereco(
            xLgr=where.logradouro,
            nro=where.numero,
            xBairro=where.bairro,
            cMun=where.codigo_municipio,
            xMun=where.municipio,
            UF=_enum(layout.Tendereco, "UF", where.uf),
            CEP=where.cep,
            cPais="1058",
            xPais="BRASIL",
        ),
        indIEDest=_enum(_Inf.Dest, "indIEDest", "1" if buyer.ie else "9"),
        IE=buyer.ie,
    )


def _det(place: int, item: Item, found: dict[str, Any], tipo: Tipo, ambiente: str) -> Any:
    first_of_test = tipo is Tipo.NFCE and place == 1 and ambiente == "2"
    quantity, price = f"{item.quantidade:.4f}", f"{item.valor_unitario:.10f}".rstrip("0")
    price = price + "0" * max(0, 2 - len(price.partition(".")[2]))
    prod = _Inf.Det.Prod(
        cProd=item.codigo,
        cEAN="SEM GTIN",
        xProd=f"NOTA FISCAL {SEM_VALOR}" if first_of_test else item.descricao,
        NCM=item.ncm,
        CFOP=item.cfop,
        uCom=item.unidade,
        qCom=quantity,
        vUnCom=price,
        vProd=f"{item.valor:.2f}",
        cEANTrib="SEM GTIN",
        uTrib=item.unidade,
        qTrib=quantity,
        vUnTrib=price,
        indTot=_enum(_Inf.Det.Prod, "indTot", "1"),
    )
    return _Inf.Det(nItem=str(place), prod=prod, imposto=_taxed(found))


def _taxed(found: dict[str, Any]) -> Any:
    """The layout's object for an item's taxes. Most items of a shop are taxed alike, and nobody changes the object."""
    return _decoded(json.dumps(found, sort_keys=True))


@lru_cache(maxsize=500)
def _decoded(text: str) -> Any:
    try:
        return _DECODER.decode(json.loads(text), _Inf.Det.Imposto)
    except (ParserError, ValueError, TypeError, AssertionError):  # the last: an object where a text belongs
        raise invalid("impostos: um grupo ou campo não existe no leiaute oficial.") from None


def _total(found: taxes.Totais) -> Any:
    # The groups of the newer taxes only where an item has them: few do, and decoding takes its time.
    newer = {name: part for name, part in (("ISTot", found.seletivo), ("IBSCBSTot", found.ibscbs)) if part is not None}
    total = _DECODER.decode(newer, _Inf.Total) if newer else _Inf.Total()
    total.ICMSTot = _Inf.Total.Icmstot(**found.icms)
    return total


def _pag(payments: tuple[Pagamento, ...], total: Decimal) -> Any:
    paid = sum((payment.valor for payment in payments), Decimal("0.00"))
    if payments and paid < total:
        raise invalid(f"pagamentos: somam {paid:.2f} e a nota é de {total:.2f}.")
    made = [_Inf.Pag.DetPag(tPag=payment.forma, vPag=f"{payment.valor:.2f}") for payment in payments]
    change = f"{paid - total:.2f}" if payments and paid > total else None
    return _Inf.Pag(detPag=made or [_Inf.Pag.DetPag(tPag="90", vPag="0.00")], vTroco=change)


@cache
def _enum(kind: type[Any], name: str, value: str) -> Any:
    """The enumeration's member that the layout has for a field's value. Raises a 422 problem."""
    from typing import get_args, get_type_hints  # noqa: PLC0415  # once per field, then remembered

    (enumeration, *_) = get_args(get_type_hints(kind)[name])
    try:
        return enumeration(value)
    except ValueError:
        raise invalid(f"{name}: {value} não existe no leiaute oficial.") from None
