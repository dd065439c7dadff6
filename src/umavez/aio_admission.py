"""AsyncAdmission: from an intent to an attempt, from tasks. The twin of `admission.py`; see there."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NoReturn, assert_never

from umavez.aio_attempt import CURRENT, PAUSES, AsyncAttempt, drive
from umavez.aio_heart import AsyncHeart
from umavez.core.drafts import claiming
from umavez.core.flow import Swapped
from umavez.core.key import Key
from umavez.core.policy import Answer, CannotTell, Happened, NotHappened
from umavez.core.protocol import (
    Asking,
    Busy,
    Claim,
    Doubtful,
    Exhausted,
    Granted,
    Intent,
    Mismatched,
    Replay,
    Verdict,
    admit,
    admitted,
    glimpsed,
)
from umavez.core.record import Record
from umavez.errors import (
    KeyReused,
    MaxRetriesExceeded,
    OperationInProgress,
    OutcomeUnknown,
    Reentered,
    StoreUncertain,
)
from umavez.outcome import Observe, Outcome
from umavez.plan import Plan, message
from umavez.stamps import STAMPS
from umavez.stores import AsyncStore

POLLS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25)
"""Seconds between looks at a key held by another process; one held here wakes its waiters itself."""

Entered = AsyncAttempt | Record | Outcome[Any]
"""An attempt to run, a settled record to replay, or an outcome adopted from the far side."""


class AsyncAdmission:
    """Lets callers in: asks the store, waits for a rival, asks the far side, and begins attempts."""

    def __init__(self, store: AsyncStore, observe: Observe) -> None:
        self._store = store
        self._observe = observe
        self._waiters: dict[bytes, asyncio.Event] = {}
        self.heart = AsyncHeart()

    async def enter(
        self, plan: Plan, intent: Intent, store: AsyncStore | None = None, pauses: tuple[float, ...] = PAUSES
    ) -> Entered:
        """What the caller may do. Raises the error that names why it may do nothing.

        `store` and `pauses` are those of a caller who joins a transaction. The common verdicts are told here;
        everything else is `admit`'s, from the same first swap on.
        """
        if CURRENT.get() is not None:
            refuse_reentry(intent.key, plan)
        if store is None:
            store = self._store
        policy = plan.policy
        draft = claiming(intent, policy, STAMPS.owner())
        try:
            reply = await store.swap(None, draft)
        except StoreUncertain:
            # Sent again as it is: a claim that was written is recognised by its stamp.
            reply = await store.swap(None, draft)
        if type(reply) is Swapped:
            claim = tuple.__new__(Claim, (draft, reply.fence, reply.now))  # see core/drafts.py
            return AsyncAttempt(store, plan, intent.key, claim, self._observe, False, pauses)
        verdict = glimpsed(intent, policy, draft, reply)
        if type(verdict) is Replay:
            record = verdict.record
            self._observe("replayed", record.key, record.attempt)
            return record
        if verdict is None:
            verdict = await drive(admitted(intent, policy, draft, reply), store)
        return await self._entered(plan, intent, verdict, store, pauses)

    async def _verdict(self, plan: Plan, intent: Intent, store: AsyncStore) -> Verdict:
        return await drive(admit(intent, plan.policy, STAMPS.owner()), store)

    async def _waited(self, plan: Plan, intent: Intent, verdict: Verdict) -> Verdict:
        """Ask again until the key is settled or free, at most for the policy's `wait`."""
        deadline = time.monotonic() + plan.policy.wait
        polls = iter(POLLS)
        poll = POLLS[-1]
        while type(verdict) is Busy and time.monotonic() < deadline:
            poll = next(polls, POLLS[-1])
            done = self._waiters.setdefault(intent.key.digest, asyncio.Event())
            await _wait(done, min(poll, max(deadline - time.monotonic(), 0.0)))
            verdict = await self._verdict(plan, intent, self._store)
        return verdict

    async def _entered(
        self, plan: Plan, intent: Intent, verdict: Verdict, store: AsyncStore, pauses: tuple[float, ...]
    ) -> Entered:
        if type(verdict) is Busy and plan.policy.wait > 0:
            verdict = await self._waited(plan, intent, verdict)
        key = intent.key
        match verdict:
            case Granted(claim, taken_over):
                if taken_over is not None:
                    self._observe("taken_over", key, claim.draft.attempt)
                return AsyncAttempt(store, plan, key, claim, self._observe, False, pauses)
            case Asking(claim, doubtful):
                return await self._asked(doubtful, AsyncAttempt(store, plan, key, claim, self._observe, False, pauses))
            case Replay(record):
                self._observe("replayed", key, record.attempt)
                return record
            case _:
                return self._refuse(key, verdict)

    def _refuse(self, key: Key, verdict: Busy | Mismatched | Exhausted | Doubtful) -> NoReturn:
        match verdict:
            case Busy(retry_after):
                self._observe("busy", key, 0)
                raise OperationInProgress(key, max(retry_after, 1) / 1000)
            case Mismatched():
                self._observe("mismatched", key, 0)
                raise KeyReused(key)
            case Exhausted(record):
                self._observe("exhausted", key, record.attempt)
                raise MaxRetriesExceeded(key, record.retry_count, record.error)
            case Doubtful(record):
                self._observe("unknown", key, record.attempt)
                raise OutcomeUnknown(key)
            case _:
                assert_never(verdict)

    async def _asked(self, doubtful: Record, attempt: AsyncAttempt) -> Entered:
        """Ask the far side about an attempt without an answer, holding the claim meanwhile."""
        plan = attempt.plan
        if plan.policy.heartbeat:
            self.heart.begin(attempt)
        try:
            answer = await answer_of(plan, doubtful)
        finally:
            self.heart.end(attempt)
        self._observe("asked", doubtful.key, doubtful.attempt)
        if isinstance(answer, Happened):
            return await attempt.adopt(answer.value, "the far side has it")
        if isinstance(answer, CannotTell):
            await attempt.give_up(answer.reason or "the far side could not tell")
            raise OutcomeUnknown(doubtful.key)
        if not doubtful.can_retry(plan.policy.max_retries):
            await attempt.exhaust("the far side never did it, and no retry is left")
            raise MaxRetriesExceeded(doubtful.key, doubtful.retry_count, doubtful.error)
        await attempt.rerun("the far side never did it")
        return attempt

    def begin(self, attempt: AsyncAttempt) -> None:
        """The attempt's code starts: it is the current one, and its lease is kept alive."""
        attempt.parent = CURRENT.get()
        CURRENT.set(attempt)
        if attempt.plan.policy.heartbeat:
            self.heart.begin(attempt)

    def end(self, attempt: AsyncAttempt) -> None:
        """The attempt's code is over and its outcome recorded: wake whoever waits for it in this process."""
        CURRENT.set(attempt.parent)
        self.heart.end(attempt)
        done = self._waiters.pop(attempt.key.digest, None)
        if done is not None:
            done.set()


async def answer_of(plan: Plan, doubtful: Record) -> Answer:
    """The far side's answer. An error of the asking code is no answer: it never counts as "did not happen"."""
    ask: Any = plan.policy.unknown
    try:
        answer = await ask(plan.question(doubtful))
    except Exception as error:  # noqa: BLE001  # whatever it raises, the outcome stays unknown
        return CannotTell(message(error))
    if isinstance(answer, Happened | NotHappened | CannotTell):
        return answer
    return CannotTell(f"unknown= answered {type(answer).__name__} instead of Happened, NotHappened or CannotTell")


def refuse_reentry(key: Key, plan: Plan) -> None:
    """Raise Reentered when an attempt at `key` is running around this one: it would wait for itself."""
    running = CURRENT.get()
    while running is not None:
        if running.key == key:
            raise Reentered(key, plan.policy.lease)
        running = running.parent


async def _wait(done: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(done.wait(), seconds)
    except TimeoutError:
        return
