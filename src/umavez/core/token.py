"""Confirmation tokens as records: who may redeem, and every change a token goes through.

A token's record is one under the key (issuer, purpose, digest of the token). `process_instance` names its owner,
`progress` holds its payload, the first entry of `evidence` how long it may be redeemed, counted from `created_at`.

    (nothing) --issue--> FAILED, attempt 0 --redeem--> PENDING --settle--> settled: replayed, also past its time
                          |  |                            |
                          |  |                            +--fail--> redeemable again, within its first time
                          |  +--cancel--> settled as cancelled
                          +--retire----> settled as expired, to be swept

Where an owner may hold only so many, a record of its own (the ledger) names those that count. However many tokens the
owner has used, no more than that are looked at for the next one.
"""

from __future__ import annotations

import json
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from typing import Any, NamedTuple

from umavez.core.drafts import drafted
from umavez.core.flow import Flow, Read, Reply, Stale, Swap, SwapFlow, Swapped
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.protocol import (
    ROUNDS,
    Asking,
    Busy,
    Claim,
    Doubt,
    Doubtful,
    Granted,
    Intent,
    Take,
    Verdict,
    judge,
)
from umavez.core.record import Draft, Instant, Millis, Record, Settled, Status
from umavez.core.resolution import noted
from umavez.core.telling import events
from umavez.core.token_errors import (
    TokenCancelled,
    TokenExpired,
    TokenNotYours,
    TokenUnknown,
    TokenUsed,
    TooManyTokens,
)
from umavez.errors import OperationInProgress, OutcomeUnknown

TOKEN_LENGTH = 64
"""Characters of a token: 32 random bytes as hexadecimal digits."""

_DIGITS = frozenset("0123456789abcdef")
UNUSED = "issued and not redeemed yet"
LEDGER = "umavez.tokens"
"""The operation under which ledgers stand; their keys are digests, which no token can be."""
ON_ITS_WAY: Millis = 60_000
"""How long a token counts that stands in the ledger and was not kept yet: its issuer writes it there first."""


class TokenState(StrEnum):
    """Where a token stands, as its owner may see it."""

    UNUSED = "unused"
    RUNNING = "running"
    USED = "used"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class Issue(NamedTuple):
    """A token about to be kept: its key, owner, payload and meaning, and for how long."""

    key: Key
    owner: str
    payload: str
    fingerprint: str | None
    ttl: Millis
    linger: Millis


def digest_of(token: str) -> str:
    """What is stored of a token: it cannot be turned back. Raises TokenUnknown for a text that is no token."""
    if len(token) != TOKEN_LENGTH or set(token) - _DIGITS:
        raise TokenUnknown
    return sha256(token.encode()).hexdigest()


def issue(issued: Issue, stamp: str) -> SwapFlow[Instant]:
    """Keep a new token; returns when it was issued, by the store's clock."""
    reply = yield Swap(None, _issued(issued, stamp))
    if isinstance(reply, Stale) and (reply.current is None or reply.current.stamp != stamp):
        # Two equal draws of 256 bits: the source of randomness is broken, and going on would join two owners.
        raise AssertionError("A new token collides with an old one; the random source of this host is broken.")
    return reply.now


def reserve(issued: Issue, most: int, keep: Millis, stamp: str) -> Flow[list[Record]]:
    """Enter a token that is about to be issued in its owner's ledger; returns those in it whose time has passed.

    Raises TooManyTokens when `most` count already, OperationInProgress when rivals were faster time and again.
    """
    name = json.dumps([issued.key.operation, issued.owner])
    ledger = Key(issued.key.scope, LEDGER, sha256(name.encode()).hexdigest())
    # Each rival that was faster has taken a place: after so many rounds none is left.
    for _ in range(most + ROUNDS):
        seen = yield Read(ledger)
        standing = _standing(seen)
        if standing is not None and standing.stamp == stamp:
            return []
        counted, running, over = yield from _entered(standing, issued.key, seen.now)
        if len(counted) >= most:
            raise TooManyTokens
        body = json.dumps([*counted, *running, [issued.key.value, seen.now]])
        draft = Draft(ledger, stamp, Status.SUCCESS, False, keep=keep, settled=Settled(True, body))
        reply = yield Swap(None if standing is None else standing.stamp, draft)
        if isinstance(reply, Swapped) or (reply.current is not None and reply.current.stamp == stamp):
            return over
    raise OperationInProgress(ledger, 1.0)


def _entered(
    ledger: Record | None, of: Key, now: Instant
) -> Flow[tuple[list[list[Any]], list[list[Any]], list[Record]]]:
    """The ledger's entries that count, those that may count again when their redemption has failed, and the records of
    those whose time passed without a word about it."""
    entries: list[list[Any]] = (
        [] if ledger is None or ledger.settled is None else json.loads(ledger.settled.body or "[]")
    )
    counted: list[list[Any]] = []
    running: list[list[Any]] = []
    over: list[Record] = []
    for value, since in entries:
        record = _standing((yield Read(Key(of.scope, of.operation, value))))
        if record is None:
            if now < since + ON_ITS_WAY:
                counted.append([value, since])
        elif retirable(record, now):
            over.append(record)
        elif record.settled is None and (where := state(record, now)) in (TokenState.UNUSED, TokenState.RUNNING):
            (counted if where is TokenState.UNUSED else running).append([value, since])
    return counted, running, over


def _issued(issued: Issue, stamp: str) -> Draft:
    entry = {"at": None, "what": "issued", "by": "umavez", "reason": "", "ttl": issued.ttl}
    return Draft(
        issued.key,
        stamp,
        Status.FAILED,
        False,
        0,
        keep=issued.ttl + issued.linger,
        fingerprint=issued.fingerprint,
        process_instance=issued.owner,
        progress=issued.payload,
        error=UNUSED,
        evidence=json.dumps([entry]),
    )


def expiry(record: Record) -> Instant:
    """When the token can no longer be redeemed. Raises TokenUnknown for a record that is no token's."""
    entries = _entries(record)
    if not entries or "ttl" not in entries[0]:
        raise TokenUnknown
    return record.created_at + int(entries[0]["ttl"])


def _entries(record: Record) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(record.evidence) if record.evidence else []
    return found


def owned(record: Record | None, owner: str | None) -> Record:
    """The record, if it is a token's and `owner`'s. Raises TokenUnknown, TokenNotYours.

    Comes before every look at the token's state: whoever holds a leaked token learns nothing about its use.
    """
    if record is None:
        raise TokenUnknown
    whose = record.process_instance
    if whose is None or owner is None or not compare_digest(whose.encode(), owner.encode()):
        raise TokenNotYours
    return record


def state(record: Record, now: Instant) -> TokenState:
    """Where the token of `record` stands at `now`."""
    last = expiry(record)
    if record.settled is not None:
        closed = {entry["what"] for entry in _entries(record)}
        if "cancelled" in closed:
            return TokenState.CANCELLED
        return TokenState.EXPIRED if "expired" in closed else TokenState.USED
    if record.status is Status.FAILED:
        return TokenState.EXPIRED if last <= now else TokenState.UNUSED
    if record.status is Status.PENDING and not record.lapsed(now):
        return TokenState.RUNNING
    return TokenState.UNKNOWN


def _refuse_if_closed(record: Record, now: Instant) -> None:
    where = state(record, now)
    if where is TokenState.CANCELLED:
        raise TokenCancelled
    if where is TokenState.EXPIRED:
        raise TokenExpired


def redeem(intent: Intent, policy: Policy, stamp: str) -> Flow[Verdict]:
    """Ask for the right to redeem; `intent.process_instance` is who asks. The protocol's verdicts.

    Raises TokenUnknown, TokenNotYours, TokenCancelled, TokenExpired. The store's time at the claim decides
    about expiry: a redemption that begins before it may end after it.
    """
    seen = yield Read(intent.key)
    standing, now = _standing(seen), seen.now
    for _ in range(ROUNDS):
        record = owned(standing, intent.process_instance)
        if record.stamp == stamp:
            return _recognised(record, policy, now)
        _refuse_if_closed(record, now)
        # Its own expiry was judged above; the record's `expires_at` only says when it may be swept.
        step = judge(record._replace(expires_at=None), intent, policy, now)
        if not isinstance(step, Take | Doubt):
            return step
        draft = _taken(record, policy, stamp, step)
        reply = yield Swap(record.stamp, draft)
        if isinstance(reply, Swapped):
            return (yield from _begun(record, step, Claim(draft, reply.fence, reply.now)))
        current, now = reply.current, reply.now
        if current is not None and current.stamp == stamp:
            return (yield from _begun(record, step, Claim(draft, current.fence, now)))
        standing = current
    return Busy(policy.lease_ms)


def _standing(reply: Reply) -> Record | None:
    return None if isinstance(reply, Swapped) else reply.current


def _taken(record: Record, policy: Policy, stamp: str, step: Take | Doubt) -> Draft:
    draft = drafted(record, stamp)
    if isinstance(step, Doubt):
        error = record.error or "The attempt ended without an answer."
        return draft._replace(status=Status.UNKNOWN, error=error, event=events.abandoned(record))
    return draft._replace(
        status=Status.PENDING,
        claims=True,
        attempt=step.attempt,
        lease=policy.lease_ms,
        error=None if record.error == UNUSED else record.error,
        event=events.claimed(record, fresh=False),
    )


def _begun(record: Record, step: Take | Doubt, claim: Claim) -> Flow[Verdict]:
    if isinstance(step, Doubt):
        return Doubtful(record)
    if step.doubtful is None and expiry(record) <= claim.granted_at:
        # Frozen between the look and the claim: the token's time passed meanwhile, so it is handed back.
        back = claim.draft.stamp + "/back"
        yield Swap(claim.draft.stamp, drafted(record, back)._replace(keep=0))
        raise TokenExpired
    if step.ask and step.doubtful is not None:
        return Asking(claim, step.doubtful)
    return Granted(claim, step.doubtful)


def _recognised(record: Record, policy: Policy, now: Instant) -> Verdict:
    """The verdict for somebody whose claim stands but who lost the answer to it, and with it what the claim was for.

    Asking first is right for whatever it was; without somebody to ask, only what may run was ever claimed.
    """
    if record.status is not Status.PENDING:
        return Doubtful(record)
    claim = Claim(drafted(record, record.stamp)._replace(lease=policy.lease_ms), record.fence, now)
    return Asking(claim, record) if policy.asks else Granted(claim)


def cancel(key: Key, owner: str, refusal: Settled, keep: Millis, note: tuple[str, str], stamp: str) -> Flow[bool]:
    """Close an unused token; whether this call did it. `note` is who and why.

    Raises as `redeem`, TokenUsed, OperationInProgress and OutcomeUnknown. Cancelling twice is no error.
    """
    for _ in range(ROUNDS):
        seen = yield Read(key)
        record = owned(_standing(seen), owner)
        where = state(record, seen.now)
        if where is TokenState.CANCELLED:
            return record.stamp == stamp
        _refuse_unless_unused(record, where, seen.now)
        closed = _closed(record, seen.now, "cancelled", note, refusal, keep, stamp)
        reply = yield Swap(record.stamp, closed)
        if isinstance(reply, Swapped):
            return True
    raise OperationInProgress(key, 1.0)


def _refuse_unless_unused(record: Record, where: TokenState, now: Instant) -> None:
    if where is TokenState.EXPIRED:
        raise TokenExpired
    if where is TokenState.USED:
        raise TokenUsed
    if where is TokenState.RUNNING:
        raise OperationInProgress(record.key, ((record.lease_until or now) - now) / 1000)
    if where is TokenState.UNKNOWN:
        raise OutcomeUnknown(record.key)


def retirable(record: Record, now: Instant) -> bool:
    """Whether the token's time passed without a redemption and nobody has said so yet."""
    return record.settled is None and state(record, now) is TokenState.EXPIRED


def retire(record: Record, now: Instant, refusal: Settled, keep: Millis, stamp: str) -> SwapFlow[bool]:
    """Close a token whose time passed; whether this call did it, so that one event is told for each token."""
    closed = _closed(record, now, "expired", ("umavez", "its time passed"), refusal, keep, stamp)
    reply = yield Swap(record.stamp, closed)
    return isinstance(reply, Swapped) or (reply.current is not None and reply.current.stamp == stamp)


def _closed(
    record: Record, now: Instant, what: str, note: tuple[str, str], refusal: Settled, keep: Millis, stamp: str
) -> Draft:
    evidence = noted(record.evidence, now, what, *note)
    # That its time passed is how a token ends; that somebody cancelled it is not.
    event = events.said(what, *note) if what == "cancelled" else None
    return drafted(record, stamp)._replace(keep=keep, settled=refusal, error=what, evidence=evidence, event=event)
