"""Money: decimals that go from JSON text to the database and back without ever being a float."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from starlette.responses import Response

from umavez import BoundedJson, InvalidJson
from umavez_systems.problems import Problem

LARGEST_BODY = 16_000_000
"""Bytes that no setting can go beyond; the server's own limit is far smaller."""
_MARK = "\x00"
_WRITTEN_MARK = "\\u0000"
_WRITTEN = re.compile(r"-?[0-9]{1,64}(?:\.[0-9]{1,64})?")
_NUMBER = re.compile(r'"\\u0000(-?[0-9]+(?:\.[0-9]+)?)"')


def exact_json(body: bytes | str) -> Any:
    """The value of a JSON text, with every fraction as Decimal, its numbers short enough to be written out anywhere.

    Raises a problem that says what to change: 413 for its size, 422 for texts that cannot be kept, else 400.
    """
    try:
        return _BOUNDED.parse(body)
    except InvalidJson as error:
        raise _problem(error) from error


def _problem(error: InvalidJson) -> Problem:
    status, kind, title = _KINDS.get(error.fault, (400, "json-invalido", "JSON inválido"))
    where = "" if error.position is None else f" (posição {error.position})"
    return Problem(status, kind, title, f"{_SENTENCES[error.fault]}{where}.")


def decimal_of(value: object) -> Decimal | None:
    """The number that somebody wrote in JSON, as a number or in a text: digits and a point. None for anything else.

    Decimal itself takes more than people mean by a number: 1_500, digits of every script, sNaN, 1e999999999.
    """
    if isinstance(value, str):
        return Decimal(value) if _WRITTEN.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return Decimal(value)


def amount_schema(largest: Decimal) -> dict[str, Any]:
    """What OpenAPI says about an amount in reais and centavos, as a number or in a text."""
    number = {"type": "number", "minimum": 0, "maximum": float(largest), "multipleOf": 0.01}
    return {"anyOf": [number, {"type": "string", "pattern": r"^[0-9]{1,8}(\.[0-9]{1,2})?$"}]}


def _marked(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{_MARK}{value:f}"
    raise TypeError(f"{type(value).__name__} is not JSON")


_BOUNDED = BoundedJson(number=Decimal, size=LARGEST_BODY, nul=False)
_KINDS = {
    "size": (413, "corpo-grande", "Corpo grande demais"),
    "surrogate": (422, "dados-invalidos", "Dados inválidos"),
    "nul": (422, "dados-invalidos", "Dados inválidos"),
}
_SENTENCES = {
    "syntax": "O corpo não é JSON válido",
    "encoding": "O corpo não é JSON válido: o texto não está em UTF-8",
    "size": f"O limite é de {_BOUNDED.size} bytes",
    "depth": f"O JSON tem listas ou objetos dentro de outros além do limite de {_BOUNDED.depth} níveis",
    "number": (
        f"O JSON tem um número que não pode ser lido: o limite é de {_BOUNDED.digits} dígitos"
        f" e de expoentes entre -{_BOUNDED.exponent} e {_BOUNDED.exponent}"
    ),
    "repeated": "O JSON repete um campo no mesmo objeto; envie cada campo uma só vez",
    "surrogate": "Os textos devem ser Unicode válido: há metade de um par substituto",
    "nul": "Textos não podem conter o caractere NUL",
}
# Made once: the json module would make a new one for every text that is not of the plainest kind.
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_marked)


class ExactJson(Response):
    """A JSON answer in which a Decimal is a number with all its places: 1500.00, not 1500.0 and not a text."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of `content`. Texts with NUL never get here: they are refused when they come in."""
        text = _ENCODER.encode(content)
        return (_NUMBER.sub(r"\1", text) if _WRITTEN_MARK in text else text).encode()
