"""Complaints: what pydantic finds wrong with a request, in the language of the systems."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictBool
from pydantic_core import PydanticCustomError

INTEGER = "deve ser um número inteiro"
NUMBER = "deve ser um número"
FLAG = "deve ser true ou false"
OBJECT = "deve ser um objeto"
_WRITTEN = re.compile(r"-?[0-9]+")


def _number(value: object) -> object:
    """What is a number in JSON: pydantic would also take true, and texts that look like one."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise PydanticCustomError("float_type", NUMBER)
    return value


def _integer(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise PydanticCustomError("int_type", INTEGER)
    return value


def _written(value: object) -> object:
    """What is a number in an address: digits. pydantic would also take 1_0 for 10, and 1.0, +1 and a blank for 1."""
    if not isinstance(value, str) or not _WRITTEN.fullmatch(value):
        raise PydanticCustomError("int_parsing", INTEGER)
    return value


Number = Annotated[float, BeforeValidator(_number)]
Integer = Annotated[int, BeforeValidator(_integer)]
Flag = StrictBool
"""Fields of bodies that take what the document says they take."""
Numbered = Annotated[int, BeforeValidator(_written)]
"""The number of something, in an address."""

SENTENCES = {
    "missing": "campo obrigatório",
    "extra_forbidden": "campo desconhecido",
    "string_type": "deve ser um texto",
    "string_too_short": "deve ter ao menos {min_length} caractere(s)",
    "string_too_long": "deve ter no máximo {max_length} caracteres",
    "string_pattern_mismatch": "não tem o formato esperado",
    "int_type": INTEGER,
    "int_parsing": INTEGER,
    "int_parsing_size": INTEGER,
    "int_from_float": INTEGER,
    "float_type": NUMBER,
    "float_parsing": NUMBER,
    "finite_number": "deve ser um número finito",
    "greater_than": "deve ser maior que {gt}",
    "greater_than_equal": "deve ser no mínimo {ge}",
    "less_than": "deve ser menor que {lt}",
    "less_than_equal": "deve ser no máximo {le}",
    "bool_type": FLAG,
    "bool_parsing": FLAG,
    "dict_type": OBJECT,
    "model_type": OBJECT,
    "model_attributes_type": OBJECT,
    "list_type": "deve ser uma lista",
    "too_short": "deve ter ao menos {min_length} item(ns)",
    "too_long": "deve ter no máximo {max_length} itens",
}
"""By pydantic's own names of its errors. Choices are not among them: see `complaint`."""


def complaint(errors: Sequence[Mapping[str, Any]]) -> str:
    """The first error in one sentence: where it is and what is wanted there. Never what was sent."""
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"]) or "corpo"
    context = first.get("ctx") or {}
    if first["type"] in ("enum", "literal_error"):
        wanted = f"deve ser um destes: {context['expected'].replace(' or ', ' ou ')}"
    else:
        wanted = SENTENCES.get(first["type"], "não é válido").format_map(context)
    return f"{where}: {wanted}."
