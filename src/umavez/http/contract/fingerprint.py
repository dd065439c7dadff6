"""The fingerprint of a request: method, path, query and body, each by what it means.

JSON bodies count by value: order of members, spaces and 1 against 1.0 make no difference. A body that is beyond the
bounds of BoundedJson (repeated members, numbers beyond measure, deep nesting, half surrogates) counts by its bytes: its
meaning depends on the parser, and only the handler behind knows whether it is to be parsed at all. So it is not refused
here, and the same bytes are the same request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from typing import Any

from umavez.core.encoding.json_text import BoundedJson
from umavez.errors import InvalidJson

VERSION = "h1"
"""Stands before every digest, so that later rules never mistake an old one for another request."""

_EXACT = "\ud800"
"""The member that marks a number in canonical form; no body has such a name, as half surrogates are refused."""

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
        return b"json", "".join(_CHUNKS(_BOUNDED.parse(body), 0)).encode()
    except InvalidJson:
        return b"odd json", body


def is_json(media: str) -> bool:
    """Whether a media type is JSON's."""
    return media == "application/json" or media.endswith("+json")


def _media(media: str) -> bytes:
    return media.encode("utf-8", "surrogateescape")


def _number(text: str) -> int | dict[str, str]:
    """A number with a fraction or an exponent: an integer where it is one, else its exact digits.

    The digits are taken as written: rounding to a float or to a context's precision would give two amounts one
    fingerprint.
    """
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)  # noqa: S101  # JSON has no number that is not finite
    figures = "".join(map(str, digits)).lstrip("0")
    stripped = figures.rstrip("0")
    exponent += len(figures) - len(stripped)
    if not stripped:
        return 0
    if exponent >= 0:
        return int(("-" if sign else "") + stripped + "0" * exponent)
    return {_EXACT: f"{'-' if sign else ''}{stripped}e{exponent}"}


def _refuse(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON")


_BOUNDED = BoundedJson(size=LARGEST_JSON, number=_number)
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
