"""States of a fiscal document, the words for what an authority's answer means, and what a document holds. Pure.

One vocabulary for every authority: a caller never has to know whose code 217 it was, and cannot mistake "nobody
knows" for "it failed".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Context, Decimal
from enum import StrEnum
from typing import Any


class Tipo(StrEnum):
    """The kinds of document, each with the authority that knows it."""

    NFE = "NFE"
    NFCE = "NFCE"
    NFSE_ADN = "NFSE_ADN"
    NFSE_SP = "NFSE_SP"

    @property
    def modelo(self) -> str:
        """The model in the access key; service invoices have none and keep their kind instead."""
        return {"NFE": "55", "NFCE": "65"}.get(self.value, self.value)

    @property
    def autoridade(self) -> str:
        """Who knows it, by the name that the catalogue of codes has."""
        return {"NFSE_ADN": "adn", "NFSE_SP": "sp"}.get(self.value, "sefaz")

    @property
    def de_servico(self) -> bool:
        """Whether it is a service invoice: its key is given by the authority, and its numbers are never voided."""
        return self.autoridade != "sefaz"

    @property
    def reenvio_destroi(self) -> bool:
        """Whether sending the same again is not refused but cancels the first document (São Paulo, alert 217)."""
        return self is Tipo.NFSE_SP


class Estado(StrEnum):
    """Where a document stands. RASCUNHO: numbered, signed and stored, and never sent."""

    RASCUNHO = "RASCUNHO"
    TRANSMITIDO = "TRANSMITIDO"
    AUTORIZADO = "AUTORIZADO"
    REJEITADO = "REJEITADO"
    DENEGADO = "DENEGADO"
    CANCELAMENTO_PENDENTE = "CANCELAMENTO_PENDENTE"
    CANCELADO = "CANCELADO"
    INUTILIZADO = "INUTILIZADO"
    INDETERMINADO = "INDETERMINADO"
    DIVERGENTE = "DIVERGENTE"


_E = Estado
TRANSICOES: dict[Estado, frozenset[Estado]] = {
    # REJEITADO without having been sent: its EPEC was refused, and without one this note is never accepted.
    _E.RASCUNHO: frozenset({_E.TRANSMITIDO, _E.INUTILIZADO, _E.REJEITADO}),
    # Back to RASCUNHO only where it is known that no byte left this machine, or that the authority read none.
    _E.TRANSMITIDO: frozenset(
        {_E.RASCUNHO, _E.AUTORIZADO, _E.REJEITADO, _E.DENEGADO, _E.CANCELADO, _E.INDETERMINADO, _E.DIVERGENTE}
    ),
    _E.INDETERMINADO: frozenset(
        {_E.TRANSMITIDO, _E.AUTORIZADO, _E.REJEITADO, _E.DENEGADO, _E.CANCELADO, _E.DIVERGENTE, _E.INUTILIZADO}
    ),
    # CANCELADO without our asking: the authority is the truth, and may have cancelled by somebody else's hand.
    _E.AUTORIZADO: frozenset({_E.CANCELAMENTO_PENDENTE, _E.CANCELADO}),
    _E.CANCELAMENTO_PENDENTE: frozenset({_E.CANCELADO, _E.AUTORIZADO}),
    # A refusal may be overruled by the authority itself: "authorised although the client saw a rejection" happens.
    _E.REJEITADO: frozenset({_E.INUTILIZADO, _E.AUTORIZADO, _E.CANCELADO, _E.DIVERGENTE}),
    # A human looks; what the authority then says about our own key is adopted.
    _E.DIVERGENTE: frozenset({_E.AUTORIZADO, _E.CANCELADO}),
    _E.DENEGADO: frozenset(),
    _E.CANCELADO: frozenset(),
    _E.INUTILIZADO: frozenset(),
}
"""Every change of state that may ever be written; the others are refused where it would be (atos/records.py)."""

ABERTOS = frozenset({_E.RASCUNHO, _E.TRANSMITIDO, _E.INDETERMINADO})
"""Emission is not over: somebody must still find out or send."""


def pode_passar(de: Estado, para: Estado) -> bool:
    """Whether a document may go from one state to another; staying is no change."""
    return para in TRANSICOES[de]


class Origem(StrEnum):
    """How the caller's answer was found (seed 004 §3.3, §6)."""

    EMISSAO = "emissao"
    CACHE = "cache"
    CONCILIACAO = "conciliacao"


class Desfecho(StrEnum):
    """What an authority's answer means, whoever the authority is."""

    AUTORIZADO = "AUTORIZADO"
    CANCELADO = "CANCELADO"
    DENEGADO = "DENEGADO"
    REJEITADO = "REJEITADO"
    INUTILIZADO = "INUTILIZADO"
    REGISTRADO = "REGISTRADO"
    """The event stands."""
    JA_EXISTE = "JA_EXISTE"
    """It is there already, perhaps by us: ask which."""
    NAO_EXISTE = "NAO_EXISTE"
    EM_PROCESSAMENTO = "EM_PROCESSAMENTO"
    DIVERGENTE = "DIVERGENTE"
    """Another document holds our number: stop."""
    LER_DENTRO = "LER_DENTRO"
    """An envelope: the answer is the code inside."""
    SERVICO_ATIVO = "SERVICO_ATIVO"
    SERVICO_PARADO = "SERVICO_PARADO"
    CONSUMO_INDEVIDO = "CONSUMO_INDEVIDO"
    INDETERMINADO = "INDETERMINADO"
    """Nobody knows; ask, never guess."""


class Acao(StrEnum):
    """What a taxpayer asks of an authority. Each has bytes, a key and a doubt of its own."""

    EMITIR = "emitir"
    CANCELAR = "cancelar"
    CORRIGIR = "corrigir"
    INUTILIZAR = "inutilizar"
    EPEC = "epec"


@dataclass(frozen=True, slots=True)
class Endereco:
    """Where somebody is."""

    logradouro: str
    numero: str
    bairro: str
    codigo_municipio: str
    municipio: str
    uf: str
    cep: str


@dataclass(frozen=True, slots=True)
class Destinatario:
    """Who buys; a consumer at the counter may stay unnamed (NFC-e)."""

    nome: str
    cpf: str | None = None
    cnpj: str | None = None
    endereco: Endereco | None = None
    ie: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One line. Quantity and price are exact; `impostos` overrides the default taxes field by field."""

    codigo: str
    descricao: str
    ncm: str
    cfop: str
    unidade: str
    quantidade: Decimal
    valor_unitario: Decimal
    impostos: dict[str, Any] = field(default_factory=dict)

    @property
    def valor(self) -> Decimal:
        """What the line costs, to the cent, halves up as the authorities round."""
        return centavos(self.quantidade * self.valor_unitario)


@dataclass(frozen=True, slots=True)
class Pagamento:
    """How a part is paid: `forma` is the official code (01 cash, 17 instant payment, …)."""

    forma: str
    valor: Decimal


@dataclass(frozen=True, slots=True)
class Servico:
    """What was done for a price. `codigo`: cTribNac (6) for the national layout, the city's own (5) for São Paulo."""

    descricao: str
    codigo: str
    valor: Decimal
    deducoes: Decimal = Decimal("0.00")
    aliquota: Decimal | None = None
    """Per cent."""
    iss_retido: bool = False
    tributacao: str | None = None
    """tribISSQN (1 to 4) or TributacaoRPS (T, F, A, …); without it, taxed where it was done."""
    substitui: str | None = None
    """The key of the invoice that this one replaces (national layout)."""


@dataclass(frozen=True, slots=True)
class Pedido:
    """What a caller wants a document for, checked."""

    tipo: Tipo
    organizacao: str
    serie: int
    itens: tuple[Item, ...]
    pagamentos: tuple[Pagamento, ...]
    destinatario: Destinatario | None = None
    natureza: str = "Venda de mercadoria"
    modo: str = "normal"
    justificativa: str | None = None
    servico: Servico | None = None

    @property
    def total(self) -> Decimal:
        """What is sold, before taxes that are added to it."""
        if self.servico is not None:
            return self.servico.valor
        return sum((item.valor for item in self.itens), Decimal("0.00"))


_LONG = Context(prec=64)
"""Python's own has 28 digits, and raises for the product of a quantity and a price that need more."""


def centavos(valor: Decimal) -> Decimal:
    """`valor` to the cent, halves up."""
    return valor.quantize(Decimal("0.01"), rounding="ROUND_HALF_UP", context=_LONG)
