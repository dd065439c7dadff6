"""Problem documents (RFC 9457): every refusal of the HTTP contract, with a stable type and a `retryable` flag."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

from umavez.errors import (
    ClaimLost,
    InvalidKey,
    KeyReused,
    MaxRetriesExceeded,
    OperationInProgress,
    OutcomeNotKept,
    OutcomeUnknown,
    StoreError,
    UmavezError,
)

BASE = "urn:umavez:problem:"
"""What every type starts with unless the service gives the address of its own documentation."""


class Kind(NamedTuple):
    """One kind of refusal. `retryable`: the same request, sent again later, may be answered otherwise."""

    name: str
    status: int
    title: str
    detail: str
    retryable: bool = False


KEY_MISSING = Kind(
    "key-missing",
    400,
    "Idempotency-Key is missing",
    "This operation needs an Idempotency-Key header; send a new random value, such as a UUID, per operation.",
)
KEY_INVALID = Kind(
    "key-invalid",
    400,
    "Idempotency-Key is malformed",
    "The key must be one Structured Field string of visible ASCII characters, quoted or bare.",
)
KEY_REPEATED = Kind(
    "key-repeated",
    400,
    "Idempotency-Key is given more than once",
    "Send exactly one Idempotency-Key header with one value, not a list.",
)
KEY_REUSED = Kind(
    "key-reused",
    422,
    "Idempotency-Key is already used",
    "This key was used for another request; send the original request again or use a new key.",
)
IN_PROGRESS = Kind(
    "in-progress",
    409,
    "A request is outstanding for this Idempotency-Key",
    "The first request with this key is still running; send it again after the time in Retry-After.",
    True,
)
OVERTAKEN = Kind(
    "overtaken",
    409,
    "Another attempt has taken over this Idempotency-Key",
    "This attempt took longer than its lease; send the request again to get the recorded outcome.",
    True,
)
OUTCOME_UNKNOWN = Kind(
    "outcome-unknown",
    409,
    "The outcome of this Idempotency-Key is not known",
    "An earlier attempt ended without an answer and may have taken effect; it is not run again until that is resolved.",
)
EXHAUSTED = Kind(
    "attempts-exhausted",
    409,
    "Every attempt for this Idempotency-Key has failed",
    "No further attempt is made under this key; ask for help or use a new key.",
)
NOT_KEPT = Kind(
    "response-not-kept",
    410,
    "The response for this Idempotency-Key was not kept",
    "The operation has run and will not run again, but its response was streamed or too large to be repeated.",
)
BODY_TOO_LARGE = Kind(
    "body-too-large",
    413,
    "The request body is too large",
    "The body is larger than this operation accepts together with an Idempotency-Key.",
)
TOO_MANY = Kind(
    "too-many-in-flight",
    429,
    "Too many keyed requests are in flight",
    "Wait for some of the running requests to end, then send this one again.",
    True,
)
STORE_UNAVAILABLE = Kind(
    "store-unavailable",
    503,
    "Idempotency cannot be ensured right now",
    "The request was not run, because nothing could be recorded about it; send it again with the same key.",
    True,
)
UNAUTHENTICATED = Kind(
    "unauthenticated", 401, "Nobody is identified", "Send the credentials that the original request was sent with."
)
NOT_ASKABLE = Kind(
    "status-query-invalid",
    400,
    "The status query is incomplete",
    "Give the Idempotency-Key header and the query parameters method and path of the original request.",
)
KINDS = (
    KEY_MISSING,
    KEY_INVALID,
    KEY_REPEATED,
    KEY_REUSED,
    IN_PROGRESS,
    OVERTAKEN,
    OUTCOME_UNKNOWN,
    EXHAUSTED,
    NOT_KEPT,
    BODY_TOO_LARGE,
    TOO_MANY,
    STORE_UNAVAILABLE,
    UNAUTHENTICATED,
    NOT_ASKABLE,
)


class Problem(Exception):
    """A refusal, as an exception until a shell answers with it. Never holds what the client sent."""

    def __init__(self, kind: Kind, detail: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(kind.title)
        self.kind = kind
        self.detail = kind.detail if detail is None else detail
        self.retry_after = retry_after

    def document(self, base: str = BASE) -> dict[str, object]:
        """The members of the document."""
        members: dict[str, object] = {
            "type": base + self.kind.name,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "retryable": self.kind.retryable,
        }
        if self.retry_after is not None:
            members["retry_after"] = self.seconds
        return members

    @property
    def seconds(self) -> int:
        """Retry-After in whole seconds, at least one."""
        return max(1, math.ceil(self.retry_after or 1))

    def body(self, base: str = BASE) -> bytes:
        """The document as JSON."""
        return json.dumps(self.document(base)).encode()


_KINDS_OF: tuple[tuple[type[UmavezError], Kind], ...] = (
    (OperationInProgress, IN_PROGRESS),
    (KeyReused, KEY_REUSED),
    (OutcomeNotKept, NOT_KEPT),
    (OutcomeUnknown, OUTCOME_UNKNOWN),
    (MaxRetriesExceeded, EXHAUSTED),
    (ClaimLost, OVERTAKEN),
    (InvalidKey, KEY_INVALID),
    (StoreError, STORE_UNAVAILABLE),
)


def problem_of(error: UmavezError, retry_after: float) -> Problem:
    """The problem that an engine's error is for the client. `retry_after` bounds how long it is told to wait.

    Raises the error itself where it is the server's own mistake (a wrong configuration).
    """
    for cause, kind in _KINDS_OF:
        if isinstance(error, cause):
            wait = min(retry_after, getattr(error, "retry_after", retry_after))
            return Problem(kind, retry_after=wait if kind.retryable else None)
    raise error
