"""JSON from strangers: parsed within bounds, before anything converts or renders what it says.

A few bytes can mean a lot of work: 1e999999999 takes gigabytes to write out, a number of a million digits seconds to
convert, a thousand brackets the stack. What is refused here never reaches code that would try.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from umavez.errors import InvalidJson

SIZE = 1_000_000
DEPTH = 64
DIGITS = 64
EXPONENT = 99

_INFINITE = (float("inf"), float("-inf"))
_SPACE = " \t\n\r"
_SHAPE = bytes.maketrans(b"123456789.E", b"0000000000e")
"""Makes all numbers look alike, so that one search finds any that may be too long."""
_NESTING = bytes.maketrans(b"{}", b"[]")
_NOT_NESTING = bytes(byte for byte in range(256) if byte not in b'"[]{}')
_IN_QUOTES = re.compile(rb'"[^"]*"?')
# Both walk over whole escapes, so that an escaped backslash before "u0000" is not taken for NUL.
_NUL = re.compile(r"(?:[^\\]++|\\(?!u0000).)*+(?=\\u0000)", re.DOTALL)
_LONE = re.compile(
    r"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F]).)*+(?=\\u[dD])",
    re.DOTALL,
)


class BoundedJson:
    """A parser of JSON text (RFC 8259, UTF-8) that refuses what is too large to be handled, and what is ambiguous.

    size: bytes in all. depth: brackets within brackets. digits: how many a number may be written with, without its
    exponent. exponent: how far that may be from zero. number: what makes a value of a number with a fraction or an
    exponent; whole numbers are int. nul: whether texts may hold the character NUL, which PostgreSQL cannot keep.

    NaN, Infinity, lone surrogates and repeated members of an object are refused: parsers do not agree about them.
    """

    def __init__(
        self,
        *,
        size: int = SIZE,
        depth: int = DEPTH,
        digits: int = DIGITS,
        exponent: int = EXPONENT,
        number: Callable[[str], Any] = float,
        nul: bool = True,
    ) -> None:
        self.size = size
        self.depth = depth
        self.digits = digits
        self.exponent = exponent
        self._nul = nul
        self._number = number
        self._deep = b"[" * (depth + 1)
        self._long = b"0" * (min(digits, 300) + 1)  # longer ones may be infinite as floats: each is looked at
        self._power = re.compile(rb"0e[+-]?000" if exponent >= 99 else rb"0e[+-]?0")
        # A hook for each number costs more than all the rest, so it is used only where one may be beyond the bounds.
        self._quick = _decoder(number, int)
        self._careful = _decoder(self._fraction, self._whole)

    def parse(self, text: str | bytes) -> Any:
        """The value of `text`. Raises InvalidJson, with where and why."""
        words, raw = _both(text)
        if len(raw) > self.size:
            raise InvalidJson("size", f"it has more than {self.size} bytes", None)
        if "\\" in words:
            self._check_escapes(words)
        if raw.count(b"[") + raw.count(b"{") > self.depth:
            self._check_depth(raw)
        try:
            return _decoded(self._careful if self._is_odd(raw.translate(_SHAPE)) else self._quick, words)
        except json.JSONDecodeError as error:
            raise InvalidJson("syntax", error.msg, error.pos) from None
        except RecursionError:
            raise self._too_deep() from None
        except _Beyond as error:
            raise InvalidJson("number", error.reason, words.find(error.literal)) from None
        except _Repeated as error:
            raise InvalidJson("repeated", f"an object has the member {error.name} more than once", None) from None

    def _is_odd(self, shape: bytes) -> bool:
        """Whether something looks like a number beyond the bounds; it may yet be part of a text."""
        # find: for `in` of bytes in bytes, Python makes an exception first and throws it away.
        return shape.find(self._long) >= 0 or (shape.find(b"0e") >= 0 and self._power.search(shape) is not None)

    def _check_escapes(self, words: str) -> None:
        if ("\\ud" in words or "\\uD" in words) and (lone := _LONE.match(words)):
            raise InvalidJson("surrogate", "half of a surrogate pair stands alone", lone.end())
        if not self._nul and "\\u0000" in words and (nul := _NUL.match(words)):
            raise InvalidJson("nul", "a text holds the character NUL", nul.end())

    def _check_depth(self, raw: bytes) -> None:
        """Refuse deep nesting. Each round takes the innermost brackets away, all of them at once."""
        if b"\\" in raw:
            raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
        marks = _IN_QUOTES.sub(b"", raw.translate(_NESTING, _NOT_NESTING).replace(b'""', b""))
        for _ in range(self.depth):
            if self._deep in marks:
                break
            left = marks.replace(b"[]", b"")
            if len(left) == len(marks):
                return  # nothing is left, or the brackets do not match, which the decoder says better
            marks = left
        if marks:
            raise self._too_deep()

    def _too_deep(self) -> InvalidJson:
        return InvalidJson("depth", f"it is nested more than {self.depth} deep", None)

    def _whole(self, literal: str) -> int:
        self._check_digits(literal, literal)
        return int(literal)

    def _fraction(self, literal: str) -> Any:
        written, _, power = literal.upper().partition("E")
        self._check_digits(written.replace(".", "", 1), literal)
        if power and (len(power) > 8 or not -self.exponent <= int(power) <= self.exponent):
            raise _Beyond(literal, f"a number has an exponent beyond {self.exponent}")
        value = self._number(literal)
        if type(value) is float and value in _INFINITE:
            raise _Beyond(literal, "a number is beyond what a float can hold")
        return value

    def _check_digits(self, written: str, literal: str) -> None:
        if len(written) - written.startswith("-") > self.digits:
            raise _Beyond(literal, f"a number has more than {self.digits} digits")


class _Beyond(Exception):
    """A number that is not converted."""

    def __init__(self, literal: str, reason: str) -> None:
        super().__init__(reason)
        self.literal = literal
        self.reason = reason


class _Repeated(Exception):
    """A member that an object has twice. Names are not values: one that reads well may be shown."""

    def __init__(self, names: list[str]) -> None:
        name = Counter(names).most_common(1)[0][0]
        self.name = repr(name) if len(name) <= 40 and name.isprintable() else "of a long name"
        super().__init__(self.name)


def _both(text: str | bytes) -> tuple[str, bytes]:
    try:
        return (text, text.encode()) if isinstance(text, str) else (text.decode(), text)
    except UnicodeEncodeError as error:
        raise InvalidJson("surrogate", "half of a surrogate pair stands alone", error.start) from None
    except UnicodeDecodeError as error:
        raise InvalidJson("encoding", "it is not UTF-8", error.start) from None


def _decoded(decoder: json.JSONDecoder, text: str) -> Any:
    """What `decoder.decode` gives, without its two searches for space where there mostly is none."""
    try:
        value, end = decoder.scan_once(text, 0)  # type: ignore[attr-defined]  # what its own decode() uses; not in the stubs
    except StopIteration:
        return decoder.decode(text)  # it begins with space, or is no JSON
    return value if end == len(text) or not text[end:].strip(_SPACE) else decoder.decode(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Repeated([name for name, _ in pairs])
    return members


def _refuse(constant: str) -> NoReturn:
    raise _Beyond(constant, f"{constant} is not a number in JSON")


def _decoder(fraction: Callable[[str], Any], whole: Callable[[str], int]) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_unique, parse_float=fraction, parse_int=whole, parse_constant=_refuse)
