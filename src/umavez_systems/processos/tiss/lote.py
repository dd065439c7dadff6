"""A lote of guias as a TISS message (ENVIO_LOTE_GUIAS).

It says what a lote here holds. What the standard asks for beyond that (CNES, the professional and his CBO, the kind of
care) is not in a lote, and is not made up: a payer who checks against the ANS's schemas asks for it.
"""

from __future__ import annotations

from datetime import datetime

from umavez_systems.processos.domain import Guia, Lote
from umavez_systems.processos.tiss.tables import TipoGuia
from umavez_systems.processos.tiss.xml import Node, message

TUSS = "22"
"""The standard's table of procedures."""
NAMES = {
    TipoGuia.CONSULTA: "guiaConsulta",
    TipoGuia.SP_SADT: "guiaSP-SADT",
    TipoGuia.INTERNACAO: "guiaResumoInternacao",
    TipoGuia.HONORARIOS: "guiaHonorarios",
    TipoGuia.ODONTO: "guiaOdonto",
}


def lote_message(lote: Lote, when: datetime) -> bytes:
    """The message with which a prestador hands the lote in. The patient's name is not part of it, the card is."""
    prestador: Node = ("identificacaoPrestador", [("codigoPrestadorNaOperadora", lote.prestador)])
    guias: list[Node] = [(NAMES[lote.tipo], _guia(guia, lote.operadora)) for guia in lote.guias]
    body: Node = ("prestadorParaOperadora", [("loteGuias", [("numeroLote", lote.numero), ("guiasTISS", guias)])])
    return message("ENVIO_LOTE_GUIAS", lote.numero, when, (prestador, ("registroANS", lote.operadora)), body)


def _guia(guia: Guia, operadora: str) -> list[Node]:
    valor = f"{guia.valor:.2f}"
    executed: list[Node] = [
        ("sequencialItem", "1"),
        ("dataExecucao", guia.atendimento),
        ("procedimento", [("codigoTabela", TUSS), ("codigoProcedimento", guia.procedimento)]),
        ("quantidadeExecutada", "1"),
        ("valorUnitario", valor),
        ("valorTotal", valor),
    ]
    return [
        ("cabecalhoGuia", [("registroANS", operadora), ("numeroGuiaPrestador", guia.numero)]),
        ("dadosBeneficiario", [("numeroCarteira", guia.carteira)]),
        ("procedimentosExecutados", [("procedimentoExecutado", executed)]),
        ("valorTotal", [("valorTotalGeral", valor)]),
    ]
