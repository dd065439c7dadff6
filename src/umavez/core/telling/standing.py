"""Where a record stands, in a word for people: a token that waits is stored as FAILED, and has not failed."""

from __future__ import annotations

from umavez.core import token as tokens
from umavez.core.lease import OPERATION as LEASE
from umavez.core.record import Instant, Record, Status
from umavez.core.token import TokenState
from umavez.core.token_errors import TokenUnknown


def token_state(record: Record, now: Instant) -> TokenState | None:
    """Where the token of `record` stands; None for a record that is no token's."""
    if record.evidence is None or '"ttl"' not in record.evidence:
        return None
    try:
        return tokens.state(record, now)
    except (TokenUnknown, ValueError, TypeError, LookupError):
        return None


def is_lease(record: Record) -> bool:
    """Whether the record is a named lease: an operation of that name may be settled, a lease never is."""
    return record.key.operation == LEASE and record.settled is None and record.status in (Status.PENDING, Status.FAILED)


def state_of(record: Record, now: Instant) -> str:
    """Where a record stands, in a word of the page: a lease given back and a token that waits have not failed."""
    if (state := token_state(record, now)) is not None:
        return str(state.value)
    if record.lapsed(now):
        return "holder gone"
    if is_lease(record):
        return "held" if record.status is Status.PENDING else "released"
    if record.status is Status.FAILED:
        return "refused" if record.settled is not None else "failed" if record.attempt else "free"
    return {Status.PENDING: "running", Status.SUCCESS: "succeeded"}.get(record.status, "unknown")
