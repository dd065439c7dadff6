"""RPS, questions and cancellations in the city's layout, and the ASCII strings that it wants signed. Sends nothing.

The root has a prefix and its children no namespace, as in the city's own samples: an empty xmlns would be signed
differently by different libraries.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez_systems.fiscal.domain import Destinatario, Servico
from umavez_systems.fiscal.ports import Numerado
from umavez_systems.fiscal.rules.identifiers import id_idempotencia_sp, invalid
from umavez_systems.fiscal.wire import signing
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.fiscal.wire.nfe import Emitente

NS = "http://www.prefeitura.sp.gov.br/nfe"
MOST = 50
"""RPS in a batch, keys in a question, notes in a page."""


def identidade(emitente: Emitente, numerado: Numerado) -> str:
    """The seed's identifier of an RPS."""
    return id_idempotencia_sp(emitente.ccm or "", str(numerado.pedido.serie), numerado.numero)


def partes(name: str) -> tuple[str, str, str]:
    """CCM, series and number in the seed's identifier, as the layout writes them."""
    ccm, serie, number = name.split("_")
    return ccm, serie, str(int(number))


def texto_do_rps(emitente: Emitente, numerado: Numerado) -> str:
    """What is signed of an RPS: 86 characters in layout 1, 90 in layout 2, whose CCM has twelve positions."""
    order, service = numerado.pedido, _service(numerado)
    who, document = _document(order.destinatario)
    return "".join(
        (
            (emitente.ccm or "").zfill(12 if emitente.layout_sp == "2" else 8),
            f"{order.serie!s:<5}",
            f"{numerado.numero:012d}",
            numerado.emissao[:10].replace("-", ""),
            service.tributacao or "T",
            "N",
            "S" if service.iss_retido else "N",
            f"{centavos(service.valor):015d}",
            f"{centavos(service.deducoes):015d}",
            f"{service.codigo:0>5}",
            who,
            f"{document:0>14}",
        )
    )


def texto_do_cancelamento(ccm: str, numero: str) -> str:
    """What is signed of a cancellation: 20 characters."""
    return f"{ccm.lstrip('0'):0>8}{int(numero):012d}"


def centavos(value: Decimal) -> int:
    """An amount in cents, exactly."""
    return int(value * 100)


def digest_de(dia: str, valor: Decimal) -> str:
    """What a note repeats of the RPS that it was made from: the day and the amount. The city repeats no signature."""
    return f"{dia}:{centavos(valor)}"


def envio(emitente: Emitente, numerado: Numerado, certificado: Certificado) -> Any:
    """An unsigned PedidoEnvioRPS with its signed RPS. Raises 422 problems."""
    rps = _rps(emitente, numerado, signing.assinar_texto(texto_do_rps(emitente, numerado), certificado))
    return _pedido("PedidoEnvioRPS", emitente, [], [rps])


def lote(emitente: Emitente, rpss: list[Any], transacao: bool) -> Any:
    """An unsigned PedidoEnvioLoteRPS around RPS that were made before. `transacao`: all of them or none."""
    if not 1 <= len(rpss) <= MOST:
        raise invalid(f"lote: de 1 a {MOST} RPS.")
    days = sorted(rps.findtext("DataEmissao") for rps in rpss)
    total = sum((Decimal(rps.findtext("ValorServicos") or "0") for rps in rpss), Decimal("0.00"))
    off = sum((Decimal(rps.findtext("ValorDeducoes") or "0") for rps in rpss), Decimal("0.00"))
    head = _texts(
        transacao="true" if transacao else "false",
        dtInicio=days[0],
        dtFim=days[-1],
        QtdRPS=str(len(rpss)),
        ValorTotalServicos=f"{total:.2f}",
        ValorTotalDeducoes=f"{off:.2f}",
    )
    return _pedido("PedidoEnvioLoteRPS", emitente, head, rpss)


def consulta(emitente: Emitente, names: list[str]) -> Any:
    """An unsigned PedidoConsultaNFe by RPS keys."""
    if not 1 <= len(names) <= MOST:
        raise invalid(f"consulta: de 1 a {MOST} chaves.")
    return _pedido("PedidoConsultaNFe", emitente, [], [_element("Detalhe", [_key(name)]) for name in names])


def periodo(emitente: Emitente, first: date, last: date, page: int) -> Any:
    """An unsigned PedidoConsultaNFePeriodo; pages begin at 1."""
    head = [
        _element("CPFCNPJ", _texts(CNPJ=emitente.cnpj)),
        *_texts(
            Inscricao=(emitente.ccm or "").zfill(8),
            dtInicio=first.isoformat(),
            dtFim=last.isoformat(),
            NumeroPagina=str(page),
        ),
    ]
    return _pedido("PedidoConsultaNFePeriodo", emitente, head, [])


def cancelamento(emitente: Emitente, numero: str, certificado: Certificado) -> Any:
    """An unsigned PedidoCancelamentoNFe of one note."""
    ccm = (emitente.ccm or "").zfill(8)
    signed = signing.assinar_texto(texto_do_cancelamento(ccm, numero), certificado)
    key = _element("ChaveNFe", _texts(InscricaoPrestador=ccm, NumeroNFe=numero))
    detail = _element("Detalhe", [key, *_texts(AssinaturaCancelamento=signed)])
    return _pedido("PedidoCancelamentoNFe", emitente, _texts(transacao="true"), [detail])


def _pedido(tag: str, emitente: Emitente, head: list[Any], parts: list[Any]) -> Any:
    root = etree.Element(f"{{{NS}}}{tag}", nsmap={"p1": NS})
    sender = _element("CPFCNPJRemetente", _texts(CNPJ=emitente.cnpj))
    cabecalho = _element("Cabecalho", [sender, *head])
    cabecalho.set("Versao", emitente.layout_sp)
    root.append(cabecalho)
    root.extend(parts)
    return root


def _rps(emitente: Emitente, numerado: Numerado, signature: str) -> Any:
    order, service = numerado.pedido, _service(numerado)
    second = emitente.layout_sp == "2"
    made = [
        *_texts(Assinatura=signature),
        _key(identidade(emitente, numerado)),
        *_texts(
            TipoRPS="RPS",
            DataEmissao=numerado.emissao[:10],
            StatusRPS="N",
            TributacaoRPS=service.tributacao or "T",
            **({} if second else {"ValorServicos": f"{service.valor:.2f}"}),
            ValorDeducoes=f"{service.deducoes:.2f}",
            CodigoServico=service.codigo,
            AliquotaServicos=f"{(service.aliquota or Decimal(0)) / 100:.4f}",
            ISSRetido="true" if service.iss_retido else "false",
        ),
        *_taker(order.destinatario),
        *_texts(Discriminacao=service.descricao),
    ]
    if second:
        made += _texts(
            ValorFinalCobrado=f"{service.valor:.2f}",
            ValorIPI="0.00",
            ExigibilidadeSuspensa="0",
            PagamentoParceladoAntecipado="0",
            cLocPrestacao=emitente.endereco.codigo_municipio,
        )
    return _element("RPS", made)


def _taker(buyer: Destinatario | None) -> list[Any]:
    if buyer is None:
        return []
    name = "CNPJ" if buyer.cnpj is not None else "CPF"
    made = [_element("CPFCNPJTomador", _texts(**{name: buyer.cnpj or buyer.cpf or ""}))]
    made += _texts(RazaoSocialTomador=buyer.nome)
    where = buyer.endereco
    if where is not None:
        place = _texts(
            Logradouro=where.logradouro[:50],
            NumeroEndereco=where.numero[:10],
            Bairro=where.bairro[:30],
            Cidade=where.codigo_municipio,
            UF=where.uf,
            CEP=where.cep,
        )
        made.append(_element("EnderecoTomador", place))
    return made


def _document(buyer: Destinatario | None) -> tuple[str, str]:
    if buyer is None:
        return "3", ""
    return ("1", buyer.cpf) if buyer.cpf is not None else ("2", buyer.cnpj or "")


def _key(name: str) -> Any:
    ccm, serie, number = partes(name)
    return _element("ChaveRPS", _texts(InscricaoPrestador=ccm, SerieRPS=serie, NumeroRPS=number))


def _service(numerado: Numerado) -> Servico:
    if numerado.pedido.servico is None:
        raise invalid("servico: obrigatório na NFS-e.")
    return numerado.pedido.servico


def _element(tag: str, parts: list[Any]) -> Any:
    made = etree.Element(tag)
    made.extend(parts)
    return made


def _texts(**texts: str) -> list[Any]:
    made = []
    for name, text in texts.items():
        element = etree.Element(name)
        element.text = text
        made.append(element)
    return made
