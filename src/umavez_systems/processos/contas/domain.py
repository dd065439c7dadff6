"""Demonstrativos, glosas by item, and recursos: values and rules. Pure.

No patient in any of them: guias are named by their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any

from umavez_systems.money import decimal_of
from umavez_systems.processos.domain import LARGEST, invalid, number_in, text_in, valor_of
from umavez_systems.processos.tiss.xml import Element, InvalidMessage, parsed

MOST_ITEMS = 5_000
"""Items of all guias of one demonstrativo."""
MOST_APPEALED = 100
_CODE = re.compile(r"[0-9]{4}")
_OPERADORA = re.compile(r"[0-9]{6}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
ZERO = Decimal("0.00")


class Tipo(StrEnum):
    """What a demonstrativo tells: what was analysed, or what was paid."""

    ANALISE = "analise"
    PAGAMENTO = "pagamento"


@dataclass(frozen=True, slots=True)
class GlosaItem:
    """A part of an item's value that the payer does not pay, with its TISS code."""

    guia: str
    item: int
    codigo: str
    valor: Decimal


@dataclass(frozen=True, slots=True)
class Demonstrativo:
    """What a payer says about one protocolo. Its three values add up: informado = liberado + glosado."""

    tipo: Tipo
    operadora: str
    numero: str
    emissao: str
    protocolo: str
    informado: Decimal
    liberado: Decimal
    glosas: tuple[GlosaItem, ...] = ()
    pagamento: str | None = None

    @property
    def glosado(self) -> Decimal:
        """What is not paid."""
        return self.informado - self.liberado

    def result(self) -> dict[str, Any]:
        """What an operation that received it gives."""
        return {
            "statementId": self.numero,
            "claimId": self.protocolo,
            "tipo": self.tipo.value,
            "emissao": self.emissao,
            "valorInformado": f"{self.informado:.2f}",
            "valorLiberado": f"{self.liberado:.2f}",
            "valorGlosado": f"{self.glosado:.2f}",
            "glosas": len(self.glosas),
            "dataPagamento": self.pagamento,
        }


def demonstrativo_of(data: bytes) -> Demonstrativo:
    """The demonstrativo in a TISS message, about one protocolo. Raises InvalidMessage, also for sums that are wrong."""
    where = parsed(data).one("operadoraParaPrestador/demonstrativosRetorno")
    if where.all("demonstrativoPagamento"):
        return _payment(where.one("demonstrativoPagamento"))
    return _analysis(where.one("demonstrativoAnaliseConta"))


def _analysis(found: Element) -> Demonstrativo:
    account = found.one("dadosConta/dadosProtocolo")
    items = list(_items(account))
    if len({(guia, number) for guia, number, *_ in items}) < len(items):
        raise InvalidMessage("O demonstrativo repete um item de uma guia.")
    glosas = tuple(glosa for *_, some in items for glosa in some)
    informado = sum((item[2] for item in items), ZERO)
    liberado = sum((item[3] for item in items), ZERO)
    told = _amount(account, "valorInformadoProtocolo"), _amount(account, "valorLiberadoProtocolo")
    if told != (informado, liberado):
        raise InvalidMessage("O demonstrativo não fecha: os totais do protocolo não são a soma dos itens.")
    return Demonstrativo(Tipo.ANALISE, *_head(found), account.leaf("numeroProtocolo", 12), informado, liberado, glosas)


def _items(account: Element) -> Iterator[tuple[str, int, Decimal, Decimal, list[GlosaItem]]]:
    """Guia, number, informado, liberado and glosas of each item."""
    details = [(guia, item) for guia in account.all("relacaoGuias") for item in guia.all("detalhesGuia")]
    if not 1 <= len(details) <= MOST_ITEMS:
        raise InvalidMessage(f"O demonstrativo deve ter de 1 a {MOST_ITEMS} itens.")
    for guia, item in details:
        name, number = guia.leaf("numeroGuiaPrestador", 20), _count(item, "sequencialItem")
        glosas = [_glosa(name, number, one) for one in item.all("relacaoGlosa")]
        if len({glosa.codigo for glosa in glosas}) < len(glosas):
            raise InvalidMessage("O demonstrativo repete uma glosa do mesmo item.")
        informado, liberado = _amount(item, "valorInformado"), _amount(item, "valorLiberado")
        if informado != liberado + sum((glosa.valor for glosa in glosas), ZERO):
            raise InvalidMessage("O demonstrativo não fecha: num item, liberado e glosas não somam o informado.")
        yield name, number, informado, liberado, glosas


def _glosa(guia: str, item: int, found: Element) -> GlosaItem:
    codigo, valor = found.leaf("tipoGlosa", 4), _amount(found, "valorGlosa")
    if not _CODE.fullmatch(codigo) or not valor:
        raise InvalidMessage("Uma glosa tem um código de 4 dígitos e um valor acima de zero.")
    return GlosaItem(guia, item, codigo, valor)


def _payment(found: Element) -> Demonstrativo:
    paid = found.one("pagamentos/pagamentosPorData")
    account = paid.one("dadosResumo/relacaoProtocolos")
    informado, liberado = _amount(account, "valorInformado"), _amount(account, "valorLiberado")
    if liberado > informado:
        raise InvalidMessage("O demonstrativo não fecha: libera mais do que foi informado.")
    protocolo, day = account.leaf("numeroProtocolo", 12), _day(paid, "dadosPagamento/dataPagamento")
    return Demonstrativo(Tipo.PAGAMENTO, *_head(found), protocolo, informado, liberado, pagamento=day)


def _head(found: Element) -> tuple[str, str, str]:
    head = found.one("cabecalhoDemonstrativo")
    operadora = head.leaf("registroANS", 6)
    if not _OPERADORA.fullmatch(operadora):
        raise InvalidMessage("registroANS deve ter 6 dígitos.")
    return operadora, head.leaf("numeroDemonstrativo", 20), _day(head, "dataEmissao")


def _amount(found: Element, path: str) -> Decimal:
    exact = decimal_of(found.leaf(path, 14))
    if exact is None or not 0 <= exact <= LARGEST or exact != exact.quantize(ZERO):
        raise InvalidMessage(f"{path} deve ser um valor em reais, como 150.00.")
    return exact.quantize(ZERO)


def _count(found: Element, path: str) -> int:
    text = found.leaf(path, 4)
    if not (text.isascii() and text.isdigit()):
        raise InvalidMessage(f"{path} deve ser um número de até 4 dígitos.")
    return int(text)


def _day(found: Element, path: str) -> str:
    text = found.leaf(path, 10)
    try:
        # Not the year 9999, to which no term can be added.
        known = _DAY.fullmatch(text) is not None and 2000 <= date.fromisoformat(text).year < 3000
    except ValueError:
        known = False
    if not known:
        raise InvalidMessage(f"{path} deve ser uma data, como 2026-07-01.")
    return text


@dataclass(frozen=True, slots=True)
class ItemRecurso:
    """One glosa that is appealed against, wholly or in part. `justificativa` goes to the payer and is kept nowhere."""

    guia: str
    item: int
    codigo: str
    valor: Decimal
    justificativa: str


@dataclass(frozen=True, slots=True)
class Recurso:
    """An appeal against glosas of one protocolo, under a number that the prestador gives (RECURSO_GLOSA)."""

    operadora: str
    protocolo: str
    numero: str
    itens: tuple[ItemRecurso, ...]

    @property
    def valor(self) -> Decimal:
        """What is asked for."""
        return sum((item.valor for item in self.itens), ZERO)

    def sent(self) -> dict[str, Any]:
        """The recurso as it goes to the payer: also what the idempotency key is made of."""
        return {
            "operadora": self.operadora,
            "protocolo": self.protocolo,
            "numeroRecurso": self.numero,
            "itens": [
                {
                    "numeroGuiaPrestador": item.guia,
                    "sequencialItem": item.item,
                    "codigoGlosa": item.codigo,
                    "valorRecursado": f"{item.valor:.2f}",
                    "justificativa": item.justificativa,
                }
                for item in self.itens
            ],
        }


@dataclass(frozen=True, slots=True)
class Recebido:
    """The payer's receipt for a recurso, and where it stands; `referencia` is what we sent with it."""

    numero: str
    situacao: str
    valor: str
    acatado: str | None
    referencia: str


def recurso_of(operadora: str, protocolo: str, numero: str, itens: list[Any]) -> Recurso:
    """The recurso that somebody describes. Raises a 422 problem that names the field, never its content."""
    if not 1 <= len(itens) <= MOST_APPEALED:
        raise invalid(f"itens: um recurso tem de 1 a {MOST_APPEALED} glosas.")
    found = tuple(_item_of(item) for item in itens)
    if len({(item.guia, item.item, item.codigo) for item in found}) < len(found):
        raise invalid("itens: uma glosa aparece mais de uma vez no recurso.")
    return Recurso(operadora, protocolo, number_in({"numeroRecurso": numero}, "numeroRecurso", 20), found)


def _item_of(data: object) -> ItemRecurso:
    if not isinstance(data, dict):
        raise invalid("itens: cada item deve ser um objeto.")
    number, codigo = data.get("sequencialItem", 1), text_in(data, "codigoGlosa", 4)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 9999:
        raise invalid("sequencialItem deve ser um número de 1 a 9999.")
    if not _CODE.fullmatch(codigo):
        raise invalid("codigoGlosa deve ser o código TISS da glosa, com 4 dígitos.")
    guia = number_in(data, "numeroGuiaPrestador", 20)
    return ItemRecurso(guia, number, codigo, valor_of(data.get("valorRecursado")), text_in(data, "justificativa", 500))
