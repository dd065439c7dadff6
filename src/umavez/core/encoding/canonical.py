"""One byte form for everything that means the same (RFC 8785 in spirit, without floats' traps)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from umavez.core.encoding.models import is_model, members_of, namesakes_of
from umavez.errors import NotStorable

_PLAIN = (int, bool, type(None))


def canonical(value: object) -> bytes:
    """The canonical JSON of `value`: sorted keys, no spaces, UTF-8.

    Numbers that are equal give equal bytes (1, 1.0 and Decimal("1.00")); times that are the same
    instant give equal bytes. Raises NotStorable for a value without a defined form.
    """
    try:
        return _ENCODE(_form(value)).encode()
    except (ArithmeticError, RecursionError, UnicodeEncodeError, ValueError) as error:
        raise NotStorable(f"This input has no canonical form ({error}); pass fingerprint= yourself.") from error


_ENCODE = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=True
).encode


def _form(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return {_name(name): _form(item) for name, item in value.items()}
    if kind is list or kind is tuple:
        return [_form(item) for item in value]
    return _special(value)


def _text(value: str) -> str:
    # NUL marks what is not text (below); a text that begins with it is marked too, so that none can pose.
    return f"\u0000s:{value}" if value[:1] == "\u0000" else value


def _name(name: object) -> str:
    """Object member names: text as it is, anything else marked by its type so that 1 and "1" stay apart."""
    if type(name) is str:
        return _text(name)
    return f"\u0000{type(name).__name__}:{_ENCODE(_form(name))}"


def _special(value: Any) -> Any:
    if isinstance(value, Enum):
        return _form(value.value)
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _number(value.total_seconds())
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"\u0000bytes": bytes(value).hex()}
    return _container(value)


def _container(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _form(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if is_model(value):
        members = {_name(name): _form(item) for name, item in members_of(value).items()}
        namesakes = namesakes_of(value)
        return {**members, "\u0000extra": _form(namesakes)} if namesakes else members
    if isinstance(value, Mapping):
        return {_name(name): _form(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_form(item) for item in value), key=_ENCODE)
    if isinstance(value, list | tuple):
        return [_form(item) for item in value]
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, int):
        return int.__int__(value)
    raise NotStorable(
        f"A {type(value).__qualname__} has no canonical form; pass fingerprint= (or key=) made of plain values."
    )


def _number(value: float | Decimal) -> int | str:
    """An integer where the number is one; else its digits and exponent. Floats never reach JSON's own rules.

    Exact for every number, whatever the decimal context; and bounded, so that 1e999999999 is not written out.
    """
    sign, digits, exponent = (value if isinstance(value, Decimal) else Decimal(float.__repr__(value))).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a finite number")  # noqa: TRY004  # the type is right, the value is not
    text = "".join(map(str, digits)).lstrip("0").rstrip("0")
    exponent += len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if not text:
        return 0
    if 0 <= exponent <= LONGEST:
        return int(f"{'-' * sign}{text}{'0' * exponent}")
    return f"\u0000n:{'-' * sign}{text}e{exponent}"


LONGEST = 400
"""Zeros that an integer may end with before it is written with an exponent."""
