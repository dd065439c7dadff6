"""AsyncAdmission: from an intent to an attempt, from tasks. The twin of `admission.py`; see there."""

from __future__ import annotations

import asyncio
import time
from typing import Any, assert_never

from umavez.aio_attempt import CURRENT, AsyncAttempt, drive
from umavez.aio_heart import AsyncHeart
from umavez.core.key import Key
from umavez.core.policy import Answer, CannotTell, Happened, NotHappened
from umavez.core.protocol import (
    Asking,
    Busy,
    Doubtful,
    Exhausted,
    Granted,
    Intent,
    Mismatched,
    Replay,
    Verdict,
    admit,
)
from umavez.core.record import Record
from umavez.errors import (
    KeyReused,
    MaxRetriesExceeded,
    OperationInProgress,
    OutcomeUnknown,
    Reentered,
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

    async def enter(self, plan: Plan, intent: Intent) -> Entered:
        """What the caller may do. Raises the error that names why it may do nothing."""
        _refuse_reentry(intent.key, plan)
        verdict = await self._verdict(plan, intent)
        if type(verdict) is Busy and plan.policy.wait > 0:
            verdict = await self._waited(plan, intent, verdict)
        if isinstance(verdict, Replay):
            self._observe("replayed", intent.key, verdict.record.attempt)
            return verdict.record
        if isinstance(verdict, Granted):
            return self._granted(plan, verdict)
        return await self._entered(plan, intent, verdict)

    async def enter_joined(self, plan: Plan, intent: Intent, store: AsyncStore) -> Entered:
        """As `enter`, inside the caller's transaction: nothing is waited for here and nothing tried twice."""
        _refuse_reentry(intent.key, plan)
        verdict = await drive(admit(intent, plan.policy, STAMPS.owner()), store)
        if type(verdict) is Replay:
            self._observe("replayed", intent.key, verdict.record.attempt)
            return verdict.record
        if type(verdict) is Granted:
            return AsyncAttempt(store, plan, intent.key, verdict.claim, self._observe, pauses=())
        return await self._entered(plan, intent, verdict)

    async def _verdict(self, plan: Plan, intent: Intent) -> Verdict:
        return await drive(admit(intent, plan.policy, STAMPS.owner()), self._store)

    async def _waited(self, plan: Plan, intent: Intent, verdict: Verdict) -> Verdict:
        """Ask again until the key is settled or free, at most for the policy's `wait`."""
        deadline = time.monotonic() + plan.policy.wait
        polls = iter(POLLS)
        poll = POLLS[-1]
        while type(verdict) is Busy and time.monotonic() < deadline:
            poll = next(polls, POLLS[-1])
            done = self._waiters.setdefault(intent.key.digest, asyncio.Event())
            await _wait(done, min(poll, max(deadline - time.monotonic(), 0.0)))
            verdict = await self._verdict(plan, intent)
        return verdict

    async def _entered(self, plan: Plan, intent: Intent, verdict: Verdict) -> Entered:  # one case per verdict
        key = intent.key
        match verdict:
            case Granted():
                return self._granted(plan, verdict)
            case Asking():
                return await self._asked(plan, verdict)
            case Replay(record):
                return record
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

    def _granted(self, plan: Plan, granted: Granted) -> AsyncAttempt:
        draft = granted.claim.draft
        if granted.taken_over is not None:
            self._observe("taken_over", draft.key, draft.attempt)
        return AsyncAttempt(self._store, plan, draft.key, granted.claim, self._observe)

    async def _asked(self, plan: Plan, asking: Asking) -> Entered:
        """Ask the far side about an attempt without an answer, holding the claim meanwhile."""
        doubtful = asking.doubtful
        attempt = AsyncAttempt(self._store, plan, doubtful.key, asking.claim, self._observe)
        self.heart.begin(attempt)
        try:
            answer = await _answer(plan, doubtful)
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


async def _answer(plan: Plan, doubtful: Record) -> Answer:
    """The far side's answer. An error of the asking code is no answer: it never counts as "did not happen"."""
    ask: Any = plan.policy.unknown
    try:
        answer = await ask(plan.question(doubtful))
    except Exception as error:  # noqa: BLE001  # whatever it raises, the outcome stays unknown
        return CannotTell(message(error))
    if isinstance(answer, Happened | NotHappened | CannotTell):
        return answer
    return CannotTell(f"unknown= answered {type(answer).__name__} instead of Happened, NotHappened or CannotTell")


def _refuse_reentry(key: Key, plan: Plan) -> None:
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
