"""Transport: how far a request came before it failed, which decides whether sending it again can do harm.

httpx and its like are recognised by the names of their exceptions, so that none of them is imported here.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any, NamedTuple


class Phase(Enum):
    """How far it came."""

    NEVER_SENT = "never sent"
    """Nothing reached the far side, or it said so: send it again freely."""
    MAYBE_SENT = "maybe sent"
    """It may have taken effect: ask, or send it again only where the far side dedupes."""
    REFUSED = "refused"
    """It was answered, and the same request will be answered the same way."""


class Trouble(NamedTuple):
    """What an error means: how far it came, the status that answered, and the pause the far side asks for."""

    phase: Phase
    status: int | None = None
    retry_after: float | None = None


NOT_PROCESSED = frozenset((425, 429))
"""Statuses that say "not now" before anything was done. Not 503: proxies also say it when a reply broke off."""

HTTP = {
    "ConnectError": Phase.NEVER_SENT,
    "ConnectTimeout": Phase.NEVER_SENT,
    "PoolTimeout": Phase.NEVER_SENT,
    "UnsupportedProtocol": Phase.REFUSED,
    "InvalidURL": Phase.REFUSED,
    "LocalProtocolError": Phase.REFUSED,
    "TooManyRedirects": Phase.REFUSED,
    # WriteError and WriteTimeout too: the far side may act on what had arrived.
    "TransportError": Phase.MAYBE_SENT,
    "DecodingError": Phase.MAYBE_SENT,
}
"""httpx's and httpcore's exceptions by name; the most particular one of an error's classes counts."""

PLAIN: tuple[tuple[type[BaseException], Phase], ...] = (
    (ConnectionRefusedError, Phase.NEVER_SENT),
    (socket.gaierror, Phase.NEVER_SENT),
    (ssl.SSLCertVerificationError, Phase.REFUSED),
    (TimeoutError, Phase.MAYBE_SENT),
    (OSError, Phase.MAYBE_SENT),
    (EOFError, Phase.MAYBE_SENT),
)
"""The standard library's; the first that fits counts."""


def trouble_of(error: BaseException, now: datetime | None = None) -> Trouble:
    """What `error` means. An error of any other kind is the caller's own, and trying again would not mend it."""
    answered = _answer(error)
    if answered is not None:
        return of_status(*answered, now=now)
    for kind in type(error).__mro__:
        if kind.__module__.partition(".")[0] in ("httpx", "httpcore") and kind.__name__ in HTTP:
            return Trouble(HTTP[kind.__name__])
    for plain, phase in PLAIN:
        if isinstance(error, plain):
            return Trouble(phase)
    return Trouble(Phase.REFUSED)


def of_status(status: int, headers: Mapping[str, str], *, now: datetime | None = None) -> Trouble:
    """What an answer means: 425 and 429 were not processed, 408 and other 5xx may have been, the rest is final."""
    wish = retry_after(headers.get("retry-after") or headers.get("Retry-After"), now)
    if status in NOT_PROCESSED:
        return Trouble(Phase.NEVER_SENT, status, wish)
    if status == 408 or 500 <= status <= 599:
        return Trouble(Phase.MAYBE_SENT, status, wish)
    return Trouble(Phase.REFUSED, status)


def _answer(error: BaseException) -> tuple[int, Mapping[str, str]] | None:
    """The status and headers that an error carries, as httpx.HTTPStatusError does."""
    response: Any = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if not isinstance(status, int):
        return None
    return status, getattr(response, "headers", {})


def retry_after(text: str | None, now: datetime | None = None) -> float | None:
    """The seconds that a Retry-After header asks for, given in seconds or as an HTTP date; None when it is neither."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - (now or datetime.now(UTC))).total_seconds(), 0.0)
