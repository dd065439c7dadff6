"""The protocol: who may run, what is replayed, and every change a record can go through.

Each function is a flow (see `flow.py`) or a pure judgement. Nothing else in umavez decides about
leases, replay, expiry or mismatch.

    (nothing) --admit--> PENDING --settle--> SUCCESS or FAILED with an outcome (a refusal)
                         |  |  |
                         |  |  +--fail--> FAILED without outcome; admit takes it while retries are left
                         |  +--doubt----> UNKNOWN; admit reruns, asks or refuses, as the policy says
                         +--(lease over): as UNKNOWN
"""

from __future__ import annotations

from typing import Any, NamedTuple

from umavez.core.fingerprint import same_meaning
from umavez.core.flow import Swap, SwapFlow, Swapped
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.record import Draft, Instant, Millis, Record, Settled, Status
from umavez.errors import ClaimLost

ROUNDS = 8
"""How often admission goes round when others keep being faster, before it says Busy."""


class Intent(NamedTuple):
    """What a caller means to do once: a key, what the request means, and where it belongs."""

    key: Key
    fingerprint: str | None = None
    process_instance: str | None = None
    activity: str | None = None


class Claim(NamedTuple):
    """The right to run. `draft` is what stands in the store; its stamp must be named to change it."""

    draft: Draft
    fence: int
    granted_at: Instant


class Granted(NamedTuple):
    """Run. `taken_over` is the record of an attempt that ended without an answer, if there was one."""

    claim: Claim
    taken_over: Record | None = None


class Asking(NamedTuple):
    """Ask the far side first; the claim is held meanwhile. `doubtful` is the attempt to ask about."""

    claim: Claim
    doubtful: Record


class Replay(NamedTuple):
    """It is settled; this is what was kept."""

    record: Record


class Busy(NamedTuple):
    """Somebody else runs it, for `retry_after` milliseconds more unless renewed."""

    retry_after: Millis


class Mismatched(NamedTuple):
    """The key was used for another request."""


class Exhausted(NamedTuple):
    """It failed, and no retry is left."""

    record: Record


class Doubtful(NamedTuple):
    """It may have happened, and the policy is to wait for a human."""

    record: Record


Verdict = Granted | Asking | Replay | Busy | Mismatched | Exhausted | Doubtful


class Take(NamedTuple):
    """A judgement: the key may be taken for attempt `attempt`, to run or to ask about `doubtful`."""

    attempt: int
    doubtful: Record | None = None
    ask: bool = False


class Doubt(NamedTuple):
    """A judgement: the attempt is over without an answer, and only a human may say more."""

    record: Record


_FIRST = Take(1)


def judge(
    record: Record, intent: Intent, policy: Policy, now: Instant
) -> Replay | Busy | Mismatched | Exhausted | Doubtful | Take | Doubt:
    """What `record` means for somebody who comes with `intent` at `now`."""
    if record.is_expired(now):
        return Take(1)
    if policy.mismatch == "reject" and not same_meaning(record.fingerprint, intent.fingerprint):
        return Mismatched()
    if record.settled is not None or record.status is Status.SUCCESS:
        # SUCCESS without an outcome should not exist; if a store lost one, it still happened and must not run again.
        return Replay(record)
    if record.status is Status.FAILED:
        return Take(record.attempt + 1) if record.can_retry(policy.max_retries) else Exhausted(record)
    if record.status is Status.PENDING and not record.lapsed(now):
        return Busy((record.lease_until or now) - now)
    return _judge_doubtful(record, policy)


def _judge_doubtful(record: Record, policy: Policy) -> Exhausted | Doubtful | Take | Doubt:
    if policy.asks:
        return Take(record.attempt, record, ask=True)
    if policy.reruns():
        return Take(record.attempt + 1, record) if record.can_retry(policy.max_retries) else Exhausted(record)
    if record.status is Status.UNKNOWN:
        return Doubtful(record)
    return Doubt(record)


def admit(intent: Intent, policy: Policy, stamp: str) -> SwapFlow[Verdict]:
    """Ask for the right to run. A new key costs one swap, a replay one swap that writes nothing."""
    draft = _claiming(intent, policy, stamp, 1)
    expected: str | None = None
    step: Take | Doubt = _FIRST
    # Each round ends with looking at its reply: a claim won in the last one must not be left behind unheld.
    for _ in range(ROUNDS):
        reply = yield Swap(expected, draft)
        if isinstance(reply, Swapped):
            return _achieved(step, draft, reply.fence, reply.now)
        record = reply.current
        if record is None:
            # Swept between the swap and the look: nothing stands there, so begin again.
            expected, draft, step = None, _claiming(intent, policy, stamp, 1), _FIRST
            continue
        if record.stamp == stamp:
            # The swap was done; its answer was lost on the way and it was sent again.
            if not _wrote(record, draft, begins=expected is None or draft.fresh):
                return _unsure(record, policy)
            return _achieved(step, draft, record.fence, reply.now)
        judgement = judge(record, intent, policy, reply.now)
        if not isinstance(judgement, (Take, Doubt)):  # a union costs three times as much here
            return judgement
        expected, step = record.stamp, judgement
        draft = _succeeding(intent, policy, stamp, record, step) if isinstance(step, Take) else _doubted(record, stamp)
    return Busy(policy.lease_ms)


def _wrote(record: Record, draft: Draft, *, begins: bool) -> bool:
    """Whether `record`, which bears the draft's stamp, is this very draft; `begins`: it begins a life.

    It is not when a caller asks again under its old stamp after the answer to a takeover was lost: taking that
    for a first claim would run what must be asked about or held.
    """
    if (record.status, record.attempt) != (draft.status, draft.attempt):
        return False
    return not begins or record.created_at == record.updated_at


def _unsure(record: Record, policy: Policy) -> Busy | Doubtful:
    """The answer to somebody whose earlier takeover stands, but who no longer knows what it was for."""
    return Doubtful(record) if record.status is Status.UNKNOWN else Busy(policy.lease_ms)


def _achieved(step: Take | Doubt, draft: Draft, fence: int, now: Instant) -> Verdict:
    """What a caller may do after the swap for `step` was done."""
    if isinstance(step, Doubt):
        return Doubtful(step.record)
    claim = Claim(draft, fence, now)
    if step.ask and step.doubtful is not None:
        return Asking(claim, step.doubtful)
    return Granted(claim, step.doubtful)


def renew(claim: Claim, stamp: str) -> SwapFlow[Claim]:
    """Extend the lease. Like all below, raises ClaimLost when somebody has taken over."""
    return _change(claim, _next(claim, stamp))


def checkpoint(claim: Claim, progress: str, stamp: str) -> SwapFlow[Claim]:
    """Keep how far the attempt got, for whoever continues; extends the lease too."""
    return _change(claim, _next(claim, stamp, progress=progress))


def rerun(claim: Claim, evidence: str, stamp: str) -> SwapFlow[Claim]:
    """Turn a claim to ask into a claim to run: the far side never did it. Counts one more attempt."""
    draft = _next(claim, stamp, attempt=claim.draft.attempt + 1, evidence=evidence)
    return _change(claim, draft)


def settle(
    claim: Claim,
    settled: Settled,
    keep: Millis,
    stamp: str,
    *,
    error: str | None = None,
    evidence: str | None = None,
) -> SwapFlow[Claim]:
    """Keep the outcome; from now on everybody is told Replay. `error` is what people read of a refusal."""
    was = claim.draft
    # Written out, because _replace costs as much as everything else here and every first call comes by.
    draft = Draft(
        was.key,
        stamp,
        Status.SUCCESS if settled.ok else Status.FAILED,
        False,
        was.attempt,
        None,
        keep,
        was.fingerprint,
        was.process_instance,
        was.activity,
        settled,
        error,
        was.progress,
        evidence or was.evidence,
    )
    return _change(claim, draft)


def fail(claim: Claim, error: str, keep: Millis, stamp: str) -> SwapFlow[Claim]:
    """Record a failure that frees the key for another attempt while retries are left."""
    draft = _next(claim, stamp, status=Status.FAILED, lease=None, keep=keep, error=error)
    return _change(claim, draft)


def doubt(claim: Claim, error: str, stamp: str, evidence: str | None = None) -> SwapFlow[Claim]:
    """Record that the attempt ended without an answer: it may have happened."""
    draft = _next(
        claim,
        stamp,
        status=Status.UNKNOWN,
        lease=None,
        keep=None,
        error=error,
        evidence=evidence or claim.draft.evidence,
    )
    return _change(claim, draft)


def _next(claim: Claim, stamp: str, **changes: Any) -> Draft:
    """The claim's draft with `changes`, under a new stamp. It asks for no new fence and begins no new life."""
    return claim.draft._replace(stamp=stamp, claims=False, fresh=False, **changes)


def _change(claim: Claim, draft: Draft) -> SwapFlow[Claim]:
    reply = yield Swap(claim.draft.stamp, draft)
    if isinstance(reply, Swapped):
        return Claim(draft, claim.fence, reply.now)
    current = reply.current
    if current is not None and current.stamp == draft.stamp:
        return Claim(draft, claim.fence, reply.now)
    if current is not None and _earlier_write(current, draft.stamp):
        reply = yield Swap(current.stamp, draft)
        if type(reply) is Swapped or (reply.current is not None and reply.current.stamp == draft.stamp):
            return Claim(draft, claim.fence, reply.now)
    raise ClaimLost(claim.draft.key)


def _earlier_write(current: Record, stamp: str) -> bool:
    """Whether `current` is this attempt's own write whose answer was lost, so that the claim still holds."""
    return current.status is Status.PENDING and current.stamp.partition("/")[0] == stamp.partition("/")[0]


def _claiming(intent: Intent, policy: Policy, stamp: str, attempt: int) -> Draft:
    return Draft(
        intent.key,
        stamp,
        Status.PENDING,
        True,
        attempt,
        policy.lease_ms,
        None,
        intent.fingerprint,
        intent.process_instance,
        intent.activity,
    )


def _succeeding(intent: Intent, policy: Policy, stamp: str, record: Record, take: Take) -> Draft:
    """The next attempt's draft: it inherits progress and evidence, unless the record had expired."""
    draft = _claiming(intent, policy, stamp, take.attempt)
    if take.attempt == 1 and take.doubtful is None:
        return draft._replace(fresh=True, evidence=None if record.settled else record.evidence)
    return draft._replace(
        fingerprint=record.fingerprint or intent.fingerprint,
        progress=record.progress,
        evidence=record.evidence,
        error=record.error,
    )


def _doubted(record: Record, stamp: str) -> Draft:
    return drafted(record, stamp)._replace(
        status=Status.UNKNOWN, lease=None, keep=None, error=record.error or "The attempt ended without an answer."
    )


def drafted(record: Record, stamp: str) -> Draft:
    """A draft that says what `record` says, under a new stamp; the start of every administrative change."""
    return Draft(
        record.key,
        stamp,
        record.status,
        False,
        record.attempt,
        None,
        None,
        record.fingerprint,
        record.process_instance,
        record.activity,
        record.settled,
        record.error,
        record.progress,
        record.evidence,
    )
