"""Clientes and propostas: values and rules. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from umavez import InvalidKey
from umavez_systems.problems import Problem

LARGEST = Decimal("99999999.99")
"""The largest DECIMAL(10,2)."""


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
    idempotencia_key: str | None

    def shown(self) -> dict[str, Any]:
        """The body of an answer (seed 000 §5.1)."""
        return {
            "id": self.id,
            "nome": self.nome,
            "email": self.email,
            "documento": self.documento,
            "idempotencia_key": self.idempotencia_key,
        }


@dataclass(frozen=True, slots=True)
class Proposta:
    """A proposta as it is now."""

    id: int
    cliente_id: int
    valor: Decimal
    estado: Estado
    versao: int
    idempotencia_key: str | None

    def shown(self) -> dict[str, Any]:
        """The body of an answer (seed 000 §5.2)."""
        return {
            "id": self.id,
            "cliente_id": self.cliente_id,
            "valor": self.valor,
            "estado": self.estado.value,
            "versao": self.versao,
            "idempotencia_key": self.idempotencia_key,
        }

    def state(self) -> dict[str, Any]:
        """The body of an answer to a change of state (seed 000 §5.3)."""
        return {"id": self.id, "estado": self.estado.value, "versao": self.versao}


def valor_exato(valor: object) -> Decimal:
    """A proposta's value in reais and centavos. Raises a 422 problem; nothing is ever rounded."""
    if isinstance(valor, bool) or not isinstance(valor, int | Decimal | str):
        raise _invalid("valor deve ser um número, por exemplo 1500.00.")
    try:
        exato = Decimal(valor)
    except ArithmeticError:
        raise _invalid("valor deve ser um número, por exemplo 1500.00.") from None
    if not exato.is_finite() or not 0 <= exato <= LARGEST:
        raise _invalid(f"valor deve estar entre 0.00 e {LARGEST}.")
    if exato != exato.quantize(Decimal("0.01")):
        raise _invalid("valor tem mais de duas casas decimais; envie reais e centavos.")
    return exato.quantize(Decimal("0.01"))


def _invalid(detail: str) -> Problem:
    return Problem(422, "dados-invalidos", "Dados inválidos", detail)
