"""Named leases as records: PENDING while held, FAILED once released, never settled.

The protocol's own admission lets one holder in at a time and gives every holder a higher fence; this adds what a
lease needs beyond an operation: giving it back, and proving inside somebody's transaction that it is still held.
"""

from __future__ import annotations

from umavez.core.drafts import drafted, failing
from umavez.core.flow import Flow, Read, Swap, SwapFlow, Swapped
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.protocol import ROUNDS, Claim
from umavez.core.record import Draft, Millis, Record, Status
from umavez.core.resolution import NoSuchRecord, noted
from umavez.core.telling import events
from umavez.errors import ClaimLost, OperationInProgress

OPERATION = "lease"
RELEASED = events.GIVEN_BACK
FOREVER = 2**31 - 2
"""As many holders as the attempt counter can count."""
KEEP = 86_400.0
"""Seconds that a released lease is still shown before the sweep may remove it."""


def policy(lease: float, wait: float) -> Policy:
    """The policy of a lease: whoever comes after it lapsed takes over, for ever."""
    return Policy("rerun", lease=lease, wait=wait, keep=KEEP, max_retries=FOREVER)


def releasing(was: Draft, stamp: str, keep: Millis) -> Draft:
    """The lease given back."""
    return failing(was, stamp, RELEASED, keep)


def given_back(record: Record, stamp: str, keep: Millis) -> Draft:
    """The lease given back for somebody who never heard of it."""
    return releasing(drafted(record, stamp), stamp, keep)


def prove(claim: Claim) -> SwapFlow[None]:
    """Renew under the same stamp, so that the claim in memory stays true whether the transaction commits or not.

    The store holds the record for the rest of the transaction: nobody takes over before it ends. Raises ClaimLost.
    A heartbeat may come between; it changes the stamp and not the fence, which is this claim's alone.
    """
    stamp = claim.draft.stamp
    for _ in range(ROUNDS):
        reply = yield Swap(stamp, claim.draft._replace(claims=False, stamp=stamp, event=None))
        if isinstance(reply, Swapped):
            return
        current = reply.current
        if current is None or current.fence != claim.fence or current.status is not Status.PENDING:
            break
        if current.stamp == stamp:
            return
        stamp = current.stamp
    raise ClaimLost(claim.draft.key)


def take_away(key: Key, by: str, reason: str, stamp: str) -> Flow[None]:
    """Free a lease whoever holds it.

    The holder's next heartbeat or proof finds another stamp and is refused, as after a takeover. Raises NoSuchRecord,
    and OperationInProgress when heartbeats came first every time.
    """
    for _ in range(ROUNDS):
        seen = yield Read(key)
        if isinstance(seen, Swapped) or seen.current is None:
            raise NoSuchRecord(key)
        evidence = noted(seen.current.evidence, seen.now, "taken away", by, reason)
        draft = drafted(seen.current, stamp)._replace(
            status=Status.FAILED,
            keep=int(KEEP * 1000),
            error=f"taken away by {by}",
            evidence=evidence,
            event=events.said("taken away", by, reason),
        )
        reply = yield Swap(seen.current.stamp, draft)
        if isinstance(reply, Swapped) or (reply.current is not None and reply.current.stamp == stamp):
            return
    raise OperationInProgress(key, 1.0)
