"""Money: decimals that go from JSON text to the database and back without ever being a float."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from starlette.responses import Response

from umavez_systems.problems import Problem

_MARK = "\x00"
_WRITTEN_MARK = "\\u0000"
_NUMBER = re.compile(r'"\\u0000(-?[0-9]+(?:\.[0-9]+)?)"')


def exact_json(body: bytes) -> Any:
    """The value of a JSON text, with every fraction as Decimal. Raises a 400 problem for what is not JSON."""
    try:
        return _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except (ValueError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(400, "json-invalido", "JSON inválido", f"O corpo não é JSON válido: {error}.") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} não é um número")


def _marked(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{_MARK}{value:f}"
    raise TypeError(f"{type(value).__name__} is not JSON")


# Made once: the json module would make a new one for every text that is not of the plainest kind.
_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse)
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_marked)


class ExactJson(Response):
    """A JSON answer in which a Decimal is a number with all its places: 1500.00, not 1500.0 and not a text."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of `content`. Texts with NUL never get here: they are refused when they come in."""
        text = _ENCODER.encode(content)
        return (_NUMBER.sub(r"\1", text) if _WRITTEN_MARK in text else text).encode()
