"""Standing: what a record means to a person: its state in a word, what may be done about it, and how to say it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from umavez.console.books import Books
from umavez.console.looks import ago, moment
from umavez.core.reconciliation import askable
from umavez.core.record import Instant, Record, Status
from umavez.core.telling.events import holder_of, prefix_of
from umavez.core.telling.history import Names, name_of
from umavez.core.telling.origin import Origin
from umavez.core.telling.standing import is_lease, state_of, token_state
from umavez.core.token import TokenState

if TYPE_CHECKING:
    from umavez.console.history import About
    from umavez.console.visit import Visit

MEANINGS = {
    "running": "Somebody is at it. Who repeats it waits or is told to come back.",
    "holder gone": "Whoever was at it is gone without an answer. It may have happened.",
    "unknown": "It may have happened. Who repeats it is told so, and nothing runs until somebody decides.",
    "succeeded": "It happened. Everybody who repeats it gets the same answer.",
    "refused": "It was refused for good. Everybody who repeats it gets the same refusal.",
    "failed": "An attempt failed. The next who repeats it may try again, while retries are left.",
    "free": "The key is free. The next who repeats it runs it.",
    "held": "The lease is held.",
    "released": "The lease was given back.",
    "unused": "The token waits to be used.",
    "used": "The token was used. Who uses it again gets the same answer.",
    "expired": "The token's time has passed.",
    "cancelled": "The token was cancelled.",
}


def tone_of(record: Record, now: Instant) -> str:
    """The colour of a record's state: of what to look at, of what runs, of what is over."""
    return _TONES.get(state_of(record, now), "success")


_TONES = {
    "unknown": "unknown",
    "holder gone": "lapsed",
    "failed": "failed",
    "refused": "failed",
    "running": "pending",
    "held": "pending",
    "unused": "pending",
    "free": "pending",
}


def column_of(record: Record, now: Instant) -> str:
    """Under which word of the overview a record counts; '' for a key that is free or a token that waits."""
    return _COLUMNS.get(state_of(record, now), "")


_COLUMNS = {
    "running": "running",
    "holder gone": "running",
    "held": "running",
    "succeeded": "succeeded",
    "used": "succeeded",
    "failed": "failed",
    "refused": "failed",
    "unknown": "unknown",
}


def policy_of(books: Books, operation: str) -> str:
    """What the operation was declared to do about an unknown outcome, in words."""
    plan = books.once.plans.declarations.get(operation)
    if plan is None:
        return "not declared here"
    if plan.policy.asks:
        return "the far side is asked"
    return "it is run again" if plan.policy.reruns() else "a person decides"


def acts_on(visit: Visit, record: Record, now: Instant) -> set[str]:
    """What who is here may do about the record as it stands."""
    if not visit.may("decide"):
        return set()
    if record.settled is not None:
        return {"override"} if visit.may("govern") else set()
    state = token_state(record, now)
    if state is TokenState.UNUSED:
        return {"cancel"}
    if is_lease(record):
        return {"release"} if record.lapsed(now) else set()
    if askable(record, now):
        asks = policy_of(visit.desk.books, record.key.operation) == "the far side is asked"
        return {"happened", "not-happened", *(("ask",) if asks else ())}
    return {"release"} if record.status is Status.FAILED and record.attempt and state is None else set()


def holder_words(visit: Visit, record: Record, now: Instant, names: Names) -> str:
    """Who wrote the record last, as people find it; said plainly where that process was never announced."""
    holder = holder_of(record.stamp)
    process = names.get(prefix_of(holder))
    if process is None:
        return visit.t("{name}: a process that was not announced here", name=holder)
    seen = visit.t("seen {time}", time=ago(visit.lang, process.seen_at, now))
    return f"{name_of(holder, names)} ({process.app}, umavez {process.version}), {seen}"


def _origin_words(visit: Visit, record: Record, origin: Origin | None) -> list[tuple[str, str | None]]:
    """The request and the trace of the last claim that had any; said where a later claim had none."""
    if origin is None:
        return []
    note = "" if origin.holder == holder_of(record.stamp) else f" ({visit.t('of an earlier claim')})"
    told = (("Request", origin.request), ("Trace", origin.trace_id))
    return [(name, f"{value}{note}") for name, value in told if value]


def fields_of(visit: Visit, record: Record, now: Instant, about: About) -> list[tuple[str, str]]:
    """What a record says of itself beyond its timeline, a line each."""
    told: list[tuple[str, str | None]] = [
        ("If the outcome is unknown", visit.t(policy_of(visit.desk.books, record.key.operation))),
        ("Attempt", str(record.attempt)),
        ("Fence", str(record.fence)),
        ("Holder", holder_words(visit, record, now, about.names)),
        *_origin_words(visit, record, about.origin),
        ("Process instance", record.process_instance),
        ("Activity", record.activity),
        ("Lease until", moment(record.lease_until)),
        ("Swept after", moment(record.expires_at)),
        ("Fingerprint", record.fingerprint),
        ("Stamp", record.stamp),
        ("Digest", record.key.digest.hex()),
    ]
    return [(name, value) for name, value in told if value]


def known_of(visit: Visit, record: Record) -> list[tuple[str, str]]:
    """What a page shows before somebody decides."""
    told = [
        ("Scope", record.key.scope),
        ("Operation", record.key.operation),
        ("Key", record.key.value),
        ("Status", visit.t(record.status.value.lower())),
        ("Attempt", str(record.attempt)),
        ("Began", moment(record.created_at)),
        ("Changed", moment(record.updated_at)),
        ("Error", record.error),
    ]
    return [(name, value) for name, value in told if value]


def private_of(record: Record, *, revealed: bool) -> list[tuple[str, str | None]]:
    """The texts that may hold personal data; None in place of one that is not revealed."""
    body = None if record.settled is None else record.settled.body
    texts = (("Result", body), ("Progress", record.progress))
    return [(name, text if revealed else None) for name, text in texts if text is not None]


def command_line(record: Record, now: Instant) -> str:
    """How the same is looked at, and decided, without a browser."""
    key = record.key
    where = shlex.join(["--", key.scope, key.operation, key.value])
    lines = [f"umavez records show {where}"]
    if askable(record, now):
        lines.append(f"umavez records resolve --not-happened --by NAME --reason WHY {where}")
    return "\n".join(lines)
