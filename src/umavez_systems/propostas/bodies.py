"""What requests about clientes and propostas carry, and what of it is refused before anything is looked up."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from umavez_systems.complaints import Integer
from umavez_systems.money import amount_schema
from umavez_systems.propostas.domain import LARGEST, email_unico

LARGEST_ID = 2**31 - 1
LONGEST_EMAIL = 250
_EMAIL = r"^[^@\s]{1,64}@[^@\s]{1,185}$"


def _comparable(email: str) -> str:
    """Itself, if what it is compared by is no longer than it may be: there are capitals whose small letter is two."""
    if len(email_unico(email)) > LONGEST_EMAIL:
        raise PydanticCustomError("string_too_long", "too long", {"max_length": LONGEST_EMAIL})
    return email


Email = Annotated[str, Field(min_length=3, max_length=LONGEST_EMAIL, pattern=_EMAIL), AfterValidator(_comparable)]


class NovoCliente(BaseModel):
    """What a new cliente needs."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"nome": "João Silva", "email": "joao@example.com", "documento": "123.456.789-00"}]
        }
    )
    nome: str = Field(min_length=1, max_length=255)
    email: Email
    documento: str | None = Field(None, max_length=20)


class NovaProposta(BaseModel):
    """What a new proposta needs. `valor` is exact: it is read from the JSON text, never through a float."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cliente_id": 1, "valor": 1500.00}]})
    cliente_id: Integer = Field(ge=1, le=LARGEST_ID)
    valor: Any = Field(json_schema_extra=amount_schema(LARGEST))
    validade: str | None = Field(None, max_length=10, json_schema_extra={"format": "date"})


class MudancaDeCliente(BaseModel):
    """What changes of a cliente; what is not said stays, and `documento: null` takes it away."""

    versao: Integer | None = Field(None, ge=1, le=LARGEST_ID)
    nome: str = Field("", min_length=1, max_length=255)
    email: Email = ""
    documento: str | None = Field(None, max_length=20)


class ClienteInteiro(NovoCliente):
    """Everything that a cliente shall be from now on."""

    versao: Integer | None = Field(None, ge=1, le=LARGEST_ID)


class MudancaDeProposta(BaseModel):
    """What changes of a rascunho; what is not said stays, and `validade: null` takes the date away."""

    versao: Integer | None = Field(None, ge=1, le=LARGEST_ID)
    cliente_id: Integer = Field(0, ge=1, le=LARGEST_ID)
    valor: Any = Field(None, json_schema_extra=amount_schema(LARGEST))
    validade: str | None = Field(None, max_length=10, json_schema_extra={"format": "date"})
    motivo: str | None = Field(None, max_length=2000)


class PropostaInteira(NovaProposta):
    """Everything that a rascunho shall be from now on."""

    versao: Integer | None = Field(None, ge=1, le=LARGEST_ID)
    motivo: str | None = Field(None, max_length=2000)


class Mudanca(BaseModel):
    """A change of state: the version it starts from, and why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"versao": 1}]})
    versao: Integer | None = Field(None, ge=1, le=LARGEST_ID)
    motivo: str | None = Field(None, max_length=2000)
