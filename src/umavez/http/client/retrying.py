"""When a client tries again: by what was heard, by how far the request got, and by whether repeating is safe."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from umavez.backoff import drawn, grown
from umavez.core.encoding.json_text import BoundedJson
from umavez.errors import InvalidJson
from umavez.failures import retry_after

IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))
"""Methods that HTTP itself declares safe to repeat."""

AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Statuses after which the same request may be answered otherwise; 409 only if its document says so."""

_BOUNDED = BoundedJson(size=100_000)
"""A problem document says little; one that says more, or nests deeply, is not listened to."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """How long a client keeps trying. Waits grow from `first` to `longest` seconds, each drawn at random below that.

    attempts: how many times a request is sent at most. total: seconds after which no new attempt begins.
    """

    attempts: int = 6
    total: float = 60.0
    first: float = 0.2
    longest: float = 10.0
    draw: Callable[[], float] = random.random

    def after_error(self, sent: int, elapsed: float, *, safe: bool) -> float | None:
        """Seconds to wait after a transport error, or None to give up."""
        return self._pause(sent, elapsed, None) if safe else None

    def after_response(
        self, sent: int, elapsed: float, status: int, headers: Any, body: bytes, *, safe: bool
    ) -> float | None:
        """Seconds to wait before sending again, or None: this response is the answer."""
        if not safe or not wants_retry(status, headers, body):
            return None
        return self._pause(sent, elapsed, retry_after(headers.get("retry-after")))

    def _pause(self, sent: int, elapsed: float, asked: float | None) -> float | None:
        if sent >= self.attempts:
            return None
        pause = drawn(grown(sent, self.first, 2.0, self.longest), self.draw, least=0.5)
        if asked is not None:
            pause = max(asked, pause if asked == 0 else 0.0)
        return None if elapsed + pause > self.total else pause


def may_matter(status: int) -> bool:
    """Whether the body of a response with `status` must be read to decide."""
    return status == 409 or status in AGAIN


def wants_retry(status: int, headers: Any, body: bytes) -> bool:
    """Whether a response says "not now" rather than "no". A problem document's own word goes first."""
    if not may_matter(status):
        return False
    told = _retryable(headers, body)
    if told is not None:
        return told
    return status in AGAIN or "retry-after" in headers


def _retryable(headers: Any, body: bytes) -> bool | None:
    if not headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        document = _BOUNDED.parse(body)
    except InvalidJson:
        return None
    told = document.get("retryable") if isinstance(document, dict) else None
    return told if isinstance(told, bool) else None
