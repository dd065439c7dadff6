"""The fingerprint of a request: method, path, query and body, each by what it means.

JSON bodies count by value: order of members, spaces and 1 against 1.0 make no difference. A body whose
meaning depends on the parser (repeated members, numbers beyond measure, deep nesting) counts by its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from hashlib import sha256
from typing import Any

VERSION = "h1"
"""Stands before every digest, so that later rules never mistake an old one for another request."""

_EXACT = "\ud800"
"""The member that marks a number in canonical form; a body that uses the name itself counts by its bytes."""

LARGEST_JSON = 1_000_000
"""Bytes above which a JSON body counts by its bytes: parsing it twice would cost more than it gives."""


def fingerprint(method: str, path: str, query: bytes, media: str, body: bytes) -> str:
    """The digest of a request whose body is at hand."""
    tag, content = _content(media, body)
    return f"{VERSION}:{sha256(_head(method, path, query, tag) + content).hexdigest()}"


def fingerprint_of_stream(method: str, path: str, query: bytes, media: str, digest: bytes) -> str:
    """The digest of a request whose body was hashed on the way (SHA-256) instead of being held."""
    return f"{VERSION}:{sha256(_head(method, path, query, b'stream ' + _media(media)) + digest).hexdigest()}"


@lru_cache(maxsize=256)
def media_type(content_type: str) -> str:
    """The media type without its parameters, lower case."""
    return content_type.partition(";")[0].strip().lower()


@lru_cache(maxsize=256)
def _head(method: str, path: str, query: bytes, tag: bytes) -> bytes:
    """What the digest begins with; made once for requests that differ only in their bodies."""
    where = path.encode("utf-8", "surrogateescape")
    asked = sorted_query(query) if query else b""
    # Lengths before texts: joined by a mark alone, two different requests could give the same bytes.
    return b"%b %d:%b%d:%b%d:%b" % (method.encode(), len(where), where, len(asked), asked, len(tag), tag)


def sorted_query(query: bytes) -> bytes:
    """The query with its pairs in order of their names; values of one name keep their order."""
    pairs = sorted(query.split(b"&"), key=_name)
    return b"&".join(pairs)


def _name(pair: bytes) -> bytes:
    return pair.partition(b"=")[0]


def _content(media: str, body: bytes) -> tuple[bytes, bytes]:
    if not body:
        return b"none", b""
    if is_json(media) and len(body) <= LARGEST_JSON:
        return _json_content(body)
    return _media(media), body


def _json_content(body: bytes) -> tuple[bytes, bytes]:
    try:
        text = body.decode()
        try:
            value, end = _SCAN(text, 0)
        except StopIteration:
            value, end = None, -1  # it begins with space, or is no JSON
        # The scanner alone does not look at what follows; most bodies end where their value does.
        if end != len(text):
            value = _DECODER.decode(text)
        return b"json", "".join(_CHUNKS(value, 0)).encode()
    except (ValueError, RecursionError, ArithmeticError):
        return b"odd json", body


def is_json(media: str) -> bool:
    """Whether a media type is JSON's."""
    return media == "application/json" or media.endswith("+json")


def _media(media: str) -> bytes:
    return media.encode("utf-8", "surrogateescape")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs) or _EXACT in members:
        raise ValueError("a member is repeated, or is ours")
    return members


def _number(text: str) -> int | dict[str, str]:
    """A number with a fraction or an exponent: an integer where it is one, else its exact digits.

    The digits are taken as written: rounding to a float or to a context's precision would give two amounts one
    fingerprint, and expanding 1e999999999 would take all memory.
    """
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation as error:
        raise ValueError("not a number") from error
    if not isinstance(exponent, int):
        raise ValueError("not a finite number")  # noqa: TRY004 - the number is wrong, not the type
    figures = "".join(map(str, digits)).lstrip("0")
    stripped = figures.rstrip("0")
    exponent += len(figures) - len(stripped)
    if not stripped:
        return 0
    if 0 <= exponent <= 30:
        return int(("-" if sign else "") + stripped + "0" * exponent)
    return {_EXACT: f"{'-' if sign else ''}{stripped}e{exponent}"}


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_number, parse_constant=_refuse)
_SCAN = _DECODER.scan_once  # type: ignore[attr-defined]  # what its own decode() uses; not in the stubs
_ENCODER = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":"), check_circular=False)


def _chunks() -> Callable[[Any, int], Iterable[str]]:
    """What `_ENCODER` makes anew for each value, made once: it costs as much as the encoding of a small body."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: _ENCODER.iterencode(value)
    made: Callable[[Any, int], Iterable[str]] = make(
        None, _refuse, json.encoder.encode_basestring_ascii, None, ":", ",", True, False, False
    )
    return made


_CHUNKS = _chunks()
