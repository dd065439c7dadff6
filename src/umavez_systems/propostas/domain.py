"""Clientes and propostas: values and rules. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from umavez import InvalidKey
from umavez_systems.money import decimal_of
from umavez_systems.problems import Problem

LARGEST = Decimal("99999999.99")
"""The largest DECIMAL(10,2)."""
BRASILIA = timedelta(hours=-3)
"""Where a day begins and ends: the official hour of Brazil, without summer time since 2019."""
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Estado(StrEnum):
    """Where a proposta stands."""

    RASCUNHO = "rascunho"
    ENVIADA = "enviada"
    ACEITA = "aceita"
    RECUSADA = "recusada"
    CANCELADA = "cancelada"


@dataclass(frozen=True, slots=True)
class Acao:
    """A change of state: its name in `tipo_operacao`, where it may start and where it leads."""

    operacao: str
    de: tuple[Estado, ...]
    para: Estado


ACOES = {
    "submeter": Acao("submeter_proposta", (Estado.RASCUNHO,), Estado.ENVIADA),
    "aceitar": Acao("aceitar_proposta", (Estado.ENVIADA,), Estado.ACEITA),
    "recusar": Acao("recusar_proposta", (Estado.ENVIADA,), Estado.RECUSADA),
    "cancelar": Acao("cancelar_proposta", (Estado.RASCUNHO, Estado.ENVIADA), Estado.CANCELADA),
}


ALTERAR_CLIENTE = "alterar_cliente"
ALTERAR_PROPOSTA = "alterar_proposta"


@dataclass(frozen=True, slots=True)
class IdempotenciaKey:
    """The client's key: not empty, at most 255 characters (seed 000 §6.1). Raises InvalidKey."""

    valor: str

    def __post_init__(self) -> None:
        if not self.valor.strip():
            raise InvalidKey("A chave de idempotência está vazia; envie de 1 a 255 caracteres.")
        if len(self.valor) > 255:
            raise InvalidKey(f"A chave de idempotência tem {len(self.valor)} caracteres; o máximo é 255.")
        if not self.valor.isprintable():
            raise InvalidKey("A chave de idempotência tem caracteres de controle; envie texto simples.")


@dataclass(frozen=True, slots=True)
class Cliente:
    """A cliente as it is now."""

    id: int
    nome: str
    email: str
    documento: str | None
    versao: int
    idempotencia_key: str | None

    def shown(self) -> dict[str, Any]:
        """The body of an answer (seed 000 §5.1); the version goes as ETag."""
        return {
            "id": self.id,
            "nome": self.nome,
            "email": self.email,
            "documento": self.documento,
            "idempotencia_key": self.idempotencia_key,
        }

    def snapshot(self) -> dict[str, Any]:
        """What is kept in `resultado`."""
        return self.shown()


@dataclass(frozen=True, slots=True)
class Proposta:
    """A proposta as it is now."""

    id: int
    cliente_id: int
    valor: Decimal
    estado: Estado
    versao: int
    validade: date | None
    idempotencia_key: str | None

    def shown(self) -> dict[str, Any]:
        """The body of an answer (seed 000 §5.2); `validade` only where there is one."""
        return {
            "id": self.id,
            "cliente_id": self.cliente_id,
            "valor": self.valor,
            "estado": self.estado.value,
            "versao": self.versao,
            "idempotencia_key": self.idempotencia_key,
            **({} if self.validade is None else {"validade": self.validade.isoformat()}),
        }

    def snapshot(self) -> dict[str, Any]:
        """What is kept in `resultado`: money as text, which no reader makes a float of."""
        return {**self.shown(), "valor": str(self.valor)}

    def state(self) -> dict[str, Any]:
        """The body of an answer to a change of state (seed 000 §5.3)."""
        return {"id": self.id, "estado": self.estado.value, "versao": self.versao}


def valor_exato(valor: object) -> Decimal:
    """A proposta's value in reais and centavos. Raises a 422 problem; nothing is ever rounded."""
    exato = decimal_of(valor)
    if exato is None:
        raise _invalid("valor deve ser um número, por exemplo 1500.00.")
    if exato.is_signed() or exato > LARGEST:
        raise _invalid(f"valor deve estar entre 0.00 e {LARGEST}.")
    if exato != exato.quantize(Decimal("0.01")):
        raise _invalid("valor tem mais de duas casas decimais; envie reais e centavos.")
    return exato.quantize(Decimal("0.01"))


def data_de_validade(text: str) -> date:
    """The last day on which a proposta may be submitted or accepted. Raises a 422 problem, also for a day gone by."""
    try:
        day = date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None:
        raise _invalid("validade deve ser uma data, por exemplo 2026-12-31.")
    if day < hoje():
        raise _invalid("validade já passou; informe o dia de hoje ou um dia futuro.")
    return day


def hoje() -> date:
    """Today in Brasília."""
    return (datetime.now(UTC) + BRASILIA).date()


def email_unico(email: str) -> str:
    """What an e-mail address is compared by: people write capitals and blanks as they please.

    Composed (NFC): some systems write `é` as two characters, others as one.
    """
    return unicodedata.normalize("NFC", email.strip().lower())


def documento_unico(documento: str | None) -> str | None:
    """What a document is compared by, without points, strokes and blanks; None where nothing is left of it."""
    return re.sub(r"[\s./-]", "", documento or "").upper() or None


def _invalid(detail: str) -> Problem:
    return Problem(422, "dados-invalidos", "Dados inválidos", detail)
