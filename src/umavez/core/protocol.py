"""The protocol: who may run, what is replayed, and every change a record can go through.

Each function is a flow (see `flow.py`) or a pure judgement. Nothing else in umavez decides about
leases, replay, expiry or mismatch.

    (nothing) --admit--> PENDING --settling--> SUCCESS or FAILED with an outcome (a refusal)
                         |  |  |
                         |  |  +--failing--> FAILED without outcome; admit takes it while retries are left
                         |  +--doubting----> UNKNOWN; admit reruns, asks or refuses, as the policy says
                         +--(lease over): as UNKNOWN

The shells (`umavez/_async/admission.py`, `attempt.py`) send the first swap of `admit` and of `change` themselves,
because most calls end with it, and hand whatever else comes back to `glimpsed`, `admitted` and `changed`.
"""

from __future__ import annotations

from typing import NamedTuple

from umavez.core import drafts
from umavez.core.drafts import Intent as Intent  # noqa: PLC0414 # a word of the protocol, though drafts need it first
from umavez.core.encoding.fingerprint import same_meaning
from umavez.core.flow import Stale, Swap, SwapFlow, Swapped, SwapReply
from umavez.core.policy import Policy
from umavez.core.record import Draft, Instant, Millis, Record, Status
from umavez.errors import ClaimLost

ROUNDS = 8
"""How often admission goes round when others keep being faster, before it says Busy."""


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


Judgement = Replay | Busy | Mismatched | Exhausted | Doubtful | Take | Doubt
"""What a record means for somebody: a verdict at once, or a step to be taken."""

_FIRST = Take(1)


def judge(record: Record, intent: Intent, policy: Policy, now: Instant) -> Judgement:
    """What `record` means for somebody who comes with `intent` at `now`."""
    if record.is_expired(now):
        return Take(1)
    offered = intent.fingerprint
    if offered is not None and policy.mismatch == "reject" and not same_meaning(record.fingerprint, offered):
        return Mismatched()
    if record.settled is not None or record.status is Status.SUCCESS:
        # SUCCESS without an outcome should not exist; if a store lost one, it still happened and must not run again.
        return tuple.__new__(Replay, (record,))  # see core/drafts.py
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
    draft = drafts.claiming(intent, policy, stamp)
    reply = yield Swap(None, draft)
    if isinstance(reply, Swapped):
        return Granted(Claim(draft, reply.fence, reply.now))
    return (yield from admitted(intent, policy, draft, reply, glimpsed(intent, policy, draft, reply)))


def glimpsed(intent: Intent, policy: Policy, draft: Draft, reply: Stale) -> Judgement | None:
    """What stands in the way of `draft`, judged; None where that is nothing any more, or the draft itself."""
    record = reply.current
    if record is None or record.stamp == draft.stamp:
        return None
    return judge(record, intent, policy, reply.now)


def admitted(
    intent: Intent, policy: Policy, draft: Draft, reply: SwapReply, judgement: Judgement | None
) -> SwapFlow[Verdict]:
    """The rest of `admit`, after the first claim, `draft`, was answered by `reply` and that was `glimpsed`."""
    stamp, expected = draft.stamp, None
    step: Take | Doubt = _FIRST
    # Each round begins with looking at a reply: a claim won in the last one must not be left behind unheld.
    for left in reversed(range(ROUNDS)):
        if isinstance(reply, Swapped):
            return _achieved(step, draft, reply.fence, reply.now)
        record = reply.current
        if record is None:
            # Swept between the swap and the look: nothing stands there, so begin again.
            expected, draft, step = None, drafts.claiming(intent, policy, stamp), _FIRST
        elif judgement is None:
            # The swap was done; its answer was lost on the way and it was sent again.
            if not _wrote(record, draft, begins=expected is None or draft.fresh):
                return _unsure(record, policy)
            return _achieved(step, draft, record.fence, reply.now)
        elif not isinstance(judgement, (Take, Doubt)):
            return judgement
        else:
            expected, step, draft = record.stamp, judgement, _stepping(intent, policy, stamp, record, judgement)
        if left:
            reply = yield Swap(expected, draft)
            judgement = glimpsed(intent, policy, draft, reply) if isinstance(reply, Stale) else None
    return Busy(policy.lease_ms)


def _stepping(intent: Intent, policy: Policy, stamp: str, record: Record, step: Take | Doubt) -> Draft:
    if isinstance(step, Doubt):
        return drafts.abandoning(record, stamp)
    fresh = step.attempt == 1 and step.doubtful is None
    return drafts.following(intent, policy, stamp, record, step.attempt, fresh=fresh)


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


def change(claim: Claim, draft: Draft) -> SwapFlow[Claim]:
    """Put `draft` (see `drafts.py` for those there are) in the place of the claim's own; returns the claim it makes.

    Raises ClaimLost when somebody has taken over.
    """
    reply = yield Swap(claim.draft.stamp, draft)
    return (yield from changed(claim, draft, reply))


def changed(claim: Claim, draft: Draft, reply: SwapReply) -> SwapFlow[Claim]:
    """The rest of `change`, from the `reply` to its first swap on."""
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
