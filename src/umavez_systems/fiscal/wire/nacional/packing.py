"""Packed XML: gzip, then base64. Packing the same bytes gives the same text; unpacking is bounded."""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from typing import Any

from umavez_systems.fiscal.ports import SemResposta
from umavez_systems.fiscal.wire.answers import LARGEST

_GZIP = b"\x1f\x8b"
_BASE64 = re.compile(rb"^[A-Za-z0-9+/\s]+={0,2}\s*\Z")
DEEPEST = 4
"""Layers that are taken off: production has been seen to answer base64 over gzip over base64."""


def embalar(xml: bytes) -> str:
    """Packed bytes; without the hour of packing, which would make every packing another."""
    return base64.b64encode(gzip.compress(xml, mtime=0)).decode()


def desembalar(packed: Any) -> bytes:
    """The XML inside, however often it was wrapped. Raises SemResposta for what is none, or larger than LARGEST."""
    if not isinstance(packed, str):
        raise SemResposta("A resposta não traz o documento compactado.")
    found = packed.encode("utf-8", "replace")
    for _ in range(DEEPEST):
        if found.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
            return found
        found = _unwrapped(found)
    raise SemResposta("O documento compactado não abre.", found[:1000])


def _unwrapped(found: bytes) -> bytes:
    if found.startswith(_GZIP):
        return _inflated(found)
    if not _BASE64.match(found):
        raise SemResposta("O documento compactado não abre.", found[:1000])
    try:
        return base64.b64decode(found)
    except binascii.Error:
        raise SemResposta("O documento compactado não é base64.", found[:1000]) from None


def _inflated(found: bytes) -> bytes:
    inflating = zlib.decompressobj(wbits=31)
    try:
        inside = inflating.decompress(found, LARGEST)
    except zlib.error:
        raise SemResposta("O documento compactado não abre.", found[:1000]) from None
    if not inflating.eof:
        raise SemResposta(f"O documento compactado está cortado ou passa de {LARGEST} bytes.", found[:1000])
    return inside
