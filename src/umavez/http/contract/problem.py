"""Problem documents (RFC 9457): every refusal of the HTTP contract, with a stable type and a `retryable` flag."""

from __future__ import annotations

import math
from typing import NamedTuple

from umavez.errors import (
    ClaimLost,
    Crowded,
    InvalidKey,
    KeyReused,
    MaxRetriesExceeded,
    OperationInProgress,
    OutcomeNotKept,
    OutcomeUnknown,
    OutcomeUnreadable,
    SchemaOutdated,
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
BODY_INCOMPLETE = Kind(
    "body-incomplete",
    400,
    "The request body is incomplete",
    "The body ended before its declared length, so nothing was run; send the whole request again with the same key.",
    True,
)
TOO_MANY = Kind(
    "too-many-in-flight",
    429,
    "Too many keyed requests are in flight",
    "Wait for some of the running requests to end, then send this one again.",
    True,
)
OVERLOADED = Kind(
    "overloaded",
    503,
    "The server is busy",
    "Too many requests are waiting; nothing was done. Send it again after the time in Retry-After.",
    True,
)
STORE_UNAVAILABLE = Kind(
    "store-unavailable",
    503,
    "Idempotency cannot be ensured right now",
    "The request was not run, because nothing could be recorded about it; send it again with the same key.",
    True,
)
TABLES_MISSING = Kind(
    "tables-missing",
    503,
    "Idempotency is not set up",
    "The store's tables are missing or old: the operator has to run `umavez migrate`; sending it again does not help.",
)
OUTCOME_UNREADABLE = Kind(
    "outcome-unreadable",
    503,
    "The outcome cannot be read here",
    "The operation has run and will not run again, but this server cannot read what was kept; ask its operator.",
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
    BODY_INCOMPLETE,
    TOO_MANY,
    OVERLOADED,
    STORE_UNAVAILABLE,
    TABLES_MISSING,
    OUTCOME_UNREADABLE,
    UNAUTHENTICATED,
    NOT_ASKABLE,
)


class Problem(Exception):
    """A refusal, as an exception until somebody answers with it. Never holds what the client sent.

    `members` stand in the document beside the usual ones; `headers` go out with it.
    """

    def __init__(
        self, kind: Kind, detail: str | None = None, retry_after: float | None = None, **members: object
    ) -> None:
        super().__init__(kind.title)
        self.kind = kind
        self.detail = kind.detail if detail is None else detail
        self.retry_after = retry_after
        self.members = members
        self.headers: dict[str, str] = {}

    @property
    def seconds(self) -> int:
        """Retry-After in whole seconds, at least one."""
        return max(1, math.ceil(self.retry_after or 1))


_KINDS_OF: tuple[tuple[type[UmavezError], Kind], ...] = (
    (OperationInProgress, IN_PROGRESS),
    (KeyReused, KEY_REUSED),
    (OutcomeNotKept, NOT_KEPT),
    (OutcomeUnknown, OUTCOME_UNKNOWN),
    (MaxRetriesExceeded, EXHAUSTED),
    (ClaimLost, OVERTAKEN),
    (InvalidKey, KEY_INVALID),
    (OutcomeUnreadable, OUTCOME_UNREADABLE),
    (SchemaOutdated, TABLES_MISSING),
    (StoreError, STORE_UNAVAILABLE),
    (Crowded, OVERLOADED),
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
