"""Guias, lotes, protocolos and glosas after TISS: values and rules. Pure.

Nothing here puts a patient's name or card number into a message: messages are stored, logged and shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from umavez_systems.money import decimal_of
from umavez_systems.problems import Problem
from umavez_systems.processos.tiss.tables import Situacao, TipoGuia

MAX_GUIAS = 100
LARGEST = Decimal("99999999.99")
_NUMBER = re.compile(r"[0-9A-Za-z./-]+")
_OPERADORA = re.compile(r"[0-9]{6}")
_TUSS = re.compile(r"[0-9]{8}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Glosa(Exception):
    """The payer's final refusal, with its TISS code. Stored as the outcome and raised again on every repeat."""

    def __init__(self, codigo: str, descricao: str) -> None:
        super().__init__(f"Glosa {codigo}: {descricao}.")
        self.codigo = codigo
        self.descricao = descricao


@dataclass(frozen=True, slots=True)
class Guia:
    """One act to be paid for. `carteira` and `beneficiario` identify a patient."""

    numero: str
    carteira: str
    beneficiario: str
    procedimento: str
    valor: Decimal
    atendimento: str

    def sent(self) -> dict[str, Any]:
        """The guia as it goes to the payer; the value as text, so that no float ever touches it."""
        return {
            "numeroGuiaPrestador": self.numero,
            "carteira": self.carteira,
            "beneficiario": self.beneficiario,
            "procedimento": self.procedimento,
            "valor": f"{self.valor:.2f}",
            "dataAtendimento": self.atendimento,
        }


class Remessa(NamedTuple):
    """By what a payer finds a lote again. No patient in it."""

    operadora: str
    prestador: str
    numero: str


@dataclass(frozen=True, slots=True)
class Lote:
    """1 to 100 guias of one type, from one prestador to one operadora."""

    operadora: str
    prestador: str
    numero: str
    tipo: TipoGuia
    guias: tuple[Guia, ...]

    @property
    def valor(self) -> Decimal:
        """What all guias are worth together."""
        return sum((guia.valor for guia in self.guias), Decimal("0.00"))

    @property
    def remessa(self) -> Remessa:
        """By what the payer finds it again."""
        return Remessa(self.operadora, self.prestador, self.numero)

    def sent(self) -> dict[str, Any]:
        """The lote as it goes to the payer: also what the idempotency key is made of."""
        return {
            "operadora": self.operadora,
            "prestador": self.prestador,
            "numeroLote": self.numero,
            "tipoGuia": self.tipo.value,
            "guias": [guia.sent() for guia in self.guias],
        }


@dataclass(frozen=True, slots=True)
class Protocolo:
    """The payer's receipt for a lote; `referencia` is what we sent with it."""

    numero: str
    situacao: Situacao
    valor: str
    referencia: str

    def result(self, lote: str) -> dict[str, Any]:
        """What submit_claim gives (seed 003: claimId and status). No patient in it."""
        return {
            "claimId": self.numero,
            "status": self.situacao.name.lower(),
            "lote": lote,
            "valor": self.valor,
        }


@dataclass(frozen=True, slots=True)
class Pagamento:
    """The payer's promise to pay a protocolo."""

    numero: str
    protocolo: str
    valor: str
    referencia: str

    def result(self) -> dict[str, Any]:
        """What process_payment gives."""
        return {"paymentId": self.numero, "claimId": self.protocolo, "valor": self.valor}


def lote_of(data: object) -> Lote:
    """The lote that `data` describes. Raises a 422 problem that names the field, never its content."""
    if not isinstance(data, dict):
        raise invalid("claimData deve ser um objeto com operadora, prestador, numeroLote, tipoGuia e guias.")
    operadora = text_in(data, "operadora", 6)
    if not _OPERADORA.fullmatch(operadora):
        raise invalid("operadora deve ser o registro ANS, com 6 dígitos.")
    if data.get("tipoGuia") not in list(TipoGuia):
        raise invalid(f"tipoGuia deve ser um de {', '.join(TipoGuia)}.")
    tipo = TipoGuia(data["tipoGuia"])
    guias = data.get("guias")
    if not isinstance(guias, list) or not 1 <= len(guias) <= MAX_GUIAS:
        raise invalid(f"guias: um lote tem de 1 a {MAX_GUIAS} guias.")
    found = tuple(_guia_of(guia, tipo) for guia in guias)
    if len({guia.numero for guia in found}) < len(found):
        raise invalid("guias: um número de guia aparece mais de uma vez no lote.")
    return Lote(operadora, text_in(data, "prestador", 14), number_in(data, "numeroLote", 12), tipo, found)


def _guia_of(data: object, tipo: TipoGuia) -> Guia:
    if not isinstance(data, dict):
        raise invalid("guias: cada guia deve ser um objeto.")
    if data.get("tipoGuia", tipo.value) != tipo.value:
        raise invalid("guias: um lote só tem guias de um tipo; separe as outras em lotes próprios.")
    procedimento = text_in(data, "procedimento", 8)
    if not _TUSS.fullmatch(procedimento):
        raise invalid("procedimento deve ser o código TUSS, com 8 dígitos.")
    atendimento = text_in(data, "dataAtendimento", 10)
    if not _is_date(atendimento):
        raise invalid("dataAtendimento deve ser uma data como 2026-07-01.")
    if date.fromisoformat(atendimento) > _latest_today():
        raise invalid("dataAtendimento está no futuro; um atendimento é cobrado depois de feito.")
    numero, carteira = number_in(data, "numeroGuiaPrestador", 20), text_in(data, "carteira", 20)
    return Guia(
        numero, carteira, text_in(data, "beneficiario", 70), procedimento, valor_of(data.get("valor")), atendimento
    )


def _is_date(text: str) -> bool:
    """Whether a text is a day of the calendar in the one form that payers read; Python takes weeks and more."""
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _latest_today() -> date:
    """The day that has begun somewhere: a host in another zone must not refuse what a hospital did this morning."""
    return (datetime.now(UTC) + timedelta(hours=14)).date()


def valor_of(valor: object) -> Decimal:
    """An amount in reais and centavos, from text or an exact number. Raises a 422 problem; nothing is rounded."""
    exato = decimal_of(valor)
    if exato is None:
        raise invalid('valor deve ser um texto como "150.00".')
    if not 0 < exato <= LARGEST:
        raise invalid(f"valor deve ser maior que zero e no máximo {LARGEST}.")
    if exato != exato.quantize(Decimal("0.01")):
        raise invalid("valor tem mais de duas casas decimais; envie reais e centavos.")
    return exato.quantize(Decimal("0.01"))


def text_in(data: dict[str, Any], name: str, longest: int) -> str:
    """The text that is called `name`, of 1 to `longest` characters that can be shown. Raises a 422 problem."""
    value = data.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > longest or not value.isprintable():
        raise invalid(f"{name}: informe um texto de 1 a {longest} caracteres.")
    return value.strip()


def number_in(data: dict[str, Any], name: str, longest: int) -> str:
    """The same for the number of a document, as TISS writes it."""
    value = text_in(data, name, longest)
    if not _NUMBER.fullmatch(value):
        raise invalid(f"{name}: use só letras, dígitos e . / -.")
    return value


RESULTS: dict[str, dict[str, type]] = {
    "submit_claim": {"claimId": str, "valor": str},
    "process_payment": {"paymentId": str},
    "check_eligibility": {"elegivel": bool},
    "request_statement": {"statementId": str, "claimId": str, "valorLiberado": str},
    "import_statement": {"statementId": str, "claimId": str, "valorLiberado": str},
    "submit_appeal": {"appealId": str, "valorRecursado": str},
}
"""What the result of an operation has at least: the process goes on with it, and so does whoever repeats the call."""


def check_result(operation: str, result: object) -> None:
    """Raise a 422 problem for a result, decided on by somebody, that `operation` could not have given."""
    wanted = RESULTS.get(operation, {})
    if not isinstance(result, dict) or any(not isinstance(result.get(name), kind) for name, kind in wanted.items()):
        fields = ", ".join(f"{name} ({'texto' if kind is str else 'booleano'})" for name, kind in wanted.items())
        raise invalid(f"result deve dizer o que {operation} devolveria, com {fields}; sem ele o processo não segue.")


def invalid(detail: str) -> Problem:
    """A 422 problem about what was sent."""
    return Problem(422, "dados-invalidos", "Dados inválidos", detail)
