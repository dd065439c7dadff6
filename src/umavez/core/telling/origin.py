"""Origin: where a claim came from, kept with its record, so that a replay in another process can name it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from umavez.core.telling.events import holder_of

if TYPE_CHECKING:
    from umavez.core.record import Record

MOST_REQUEST = 64
"""Characters of a request's id that are kept; a longer one is a stranger's text and is left out."""

_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_REQUEST = re.compile(rf"[!-~]{{1,{MOST_REQUEST}}}")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_NONE = "-"


class Origin(NamedTuple):
    """Where the claim of `holder` came from: the trace of its caller (W3C traceparent), and the id of its request.

    It tells who made the present outcome only where `holder` is that of the record's stamp: a claim that brings no
    origin leaves the one that stands.
    """

    holder: str
    trace: str | None = None
    request: str | None = None

    @classmethod
    def of(cls, text: str | None) -> Origin | None:
        """The origin that a store keeps as `text`; None where it keeps none."""
        if not text:
            return None
        holder, trace, request = (*text.split(" "), _NONE, _NONE)[:3]
        return cls(holder, None if trace == _NONE else trace, None if request == _NONE else request)

    @property
    def trace_id(self) -> str | None:
        """The trace, in hexadecimal digits as tracers print it."""
        found = None if self.trace is None else _TRACE.fullmatch(self.trace)
        return None if found is None else found[1]


def made_in(record: Record) -> Origin | None:
    """Where the claim came from that made the outcome of `record`, if that is known."""
    origin = Origin.of(record.origin)
    return origin if origin is not None and origin.holder == holder_of(record.stamp) else None


def whence(trace: str | None, request: str | None = None) -> str | None:
    """What is known of a caller before it claims; None where that is nothing. What is badly formed is left out."""
    known = None if trace is None else _TRACE.fullmatch(trace)
    if known is None or known[1] == _NO_TRACE or known[2] == _NO_SPAN:
        trace = None
    if request is not None and (request == _NONE or not _REQUEST.fullmatch(request)):
        request = None
    return None if trace is None and request is None else f"{trace or _NONE} {request or _NONE}"


def originated(holder: str, from_where: str) -> str:
    """The text that a store keeps with the claim of `holder`; `from_where` is what `whence` says."""
    return f"{holder} {from_where}"


def traced(from_where: str | None, trace: str | None) -> str | None:
    """`from_where` with `trace` for its trace: a span that is current here is nearer than a header."""
    if trace is None:
        return from_where
    return f"{trace} {_NONE if from_where is None else from_where.partition(' ')[2]}"
