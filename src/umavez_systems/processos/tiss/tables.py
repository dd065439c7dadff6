"""Tables of TISS, the standard by which Brazilian hospitals and payers talk. Light: the simulator starts with it."""

from __future__ import annotations

from enum import IntEnum, StrEnum

JA_APRESENTADA = "1308"
"""TISS: guia já apresentada."""


class TipoGuia(StrEnum):
    """What a lote is made of: one type only."""

    CONSULTA = "consulta"
    SP_SADT = "sp_sadt"
    INTERNACAO = "resumo_internacao"
    HONORARIOS = "honorarios"
    ODONTO = "odonto"


class Situacao(IntEnum):
    """Where a protocolo stands at the payer (TISS)."""

    RECEBIDO = 1
    EM_ANALISE = 2
    LIBERADO = 3
    ENCERRADO_SEM_PAGAMENTO = 4
    AGUARDANDO_LIBERACAO = 5
    PAGO = 6
    NAO_LOCALIZADO = 7
    AGUARDANDO_INFORMACAO = 8
    CANCELADO = 9
    BLOQUEIO = 10
