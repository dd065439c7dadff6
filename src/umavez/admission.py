"""Admission: from an intent to an attempt, a replay, or the error that says why not. `aio_admission.py` is its twin."""

from __future__ import annotations

import threading
import time
from typing import Any, NoReturn, assert_never

from umavez.attempt import CURRENT, PAUSES, Attempt, drive
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
from umavez.heart import Heart
from umavez.outcome import Observe, Outcome
from umavez.plan import Plan, message
from umavez.stamps import STAMPS
from umavez.stores import Store

POLLS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25)
"""Seconds between looks at a key held by another process; one held here wakes its waiters itself."""

Entered = Attempt | Record | Outcome[Any]
"""An attempt to run, a settled record to replay, or an outcome adopted from the far side."""


class Admission:
    """Lets callers in: asks the store, waits for a rival, asks the far side, and begins attempts."""

    def __init__(self, store: Store, observe: Observe) -> None:
        self._store = store
        self._observe = observe
        self._waiters: dict[bytes, threading.Event] = {}
        self.heart = Heart()

    def enter(
        self, plan: Plan, intent: Intent, store: Store | None = None, pauses: tuple[float, ...] = PAUSES
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
            reply = store.swap(None, draft)
        except StoreUncertain:
            # Sent again as it is: a claim that was written is recognised by its stamp.
            reply = store.swap(None, draft)
        if type(reply) is Swapped:
            claim = tuple.__new__(Claim, (draft, reply.fence, reply.now))  # see core/drafts.py
            return Attempt(store, plan, intent.key, claim, self._observe, False, pauses)
        verdict = glimpsed(intent, policy, draft, reply)
        if type(verdict) is Replay:
            record = verdict.record
            self._observe("replayed", record.key, record.attempt)
            return record
        if verdict is None:
            verdict = drive(admitted(intent, policy, draft, reply), store)
        return self._entered(plan, intent, verdict, store, pauses)

    def _verdict(self, plan: Plan, intent: Intent, store: Store) -> Verdict:
        return drive(admit(intent, plan.policy, STAMPS.owner()), store)

    def _waited(self, plan: Plan, intent: Intent, verdict: Verdict) -> Verdict:
        """Ask again until the key is settled or free, at most for the policy's `wait`."""
        deadline = time.monotonic() + plan.policy.wait
        polls = iter(POLLS)
        poll = POLLS[-1]
        while type(verdict) is Busy and time.monotonic() < deadline:
            poll = next(polls, POLLS[-1])
            done = self._waiters.setdefault(intent.key.digest, threading.Event())
            _wait(done, min(poll, max(deadline - time.monotonic(), 0.0)))
            verdict = self._verdict(plan, intent, self._store)
        return verdict

    def _entered(
        self, plan: Plan, intent: Intent, verdict: Verdict, store: Store, pauses: tuple[float, ...]
    ) -> Entered:
        if type(verdict) is Busy and plan.policy.wait > 0:
            verdict = self._waited(plan, intent, verdict)
        key = intent.key
        match verdict:
            case Granted(claim, taken_over):
                if taken_over is not None:
                    self._observe("taken_over", key, claim.draft.attempt)
                return Attempt(store, plan, key, claim, self._observe, False, pauses)
            case Asking(claim, doubtful):
                return self._asked(doubtful, Attempt(store, plan, key, claim, self._observe, False, pauses))
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

    def _asked(self, doubtful: Record, attempt: Attempt) -> Entered:
        """Ask the far side about an attempt without an answer, holding the claim meanwhile."""
        plan = attempt.plan
        if plan.policy.heartbeat:
            self.heart.begin(attempt)
        try:
            answer = answer_of(plan, doubtful)
        finally:
            self.heart.end(attempt)
        self._observe("asked", doubtful.key, doubtful.attempt)
        if isinstance(answer, Happened):
            return attempt.adopt(answer.value, "the far side has it")
        if isinstance(answer, CannotTell):
            attempt.give_up(answer.reason or "the far side could not tell")
            raise OutcomeUnknown(doubtful.key)
        if not doubtful.can_retry(plan.policy.max_retries):
            attempt.exhaust("the far side never did it, and no retry is left")
            raise MaxRetriesExceeded(doubtful.key, doubtful.retry_count, doubtful.error)
        attempt.rerun("the far side never did it")
        return attempt

    def begin(self, attempt: Attempt) -> None:
        """The attempt's code starts: it is the current one, and its lease is kept alive."""
        attempt.parent = CURRENT.get()
        CURRENT.set(attempt)
        if attempt.plan.policy.heartbeat:
            self.heart.begin(attempt)

    def end(self, attempt: Attempt) -> None:
        """The attempt's code is over and its outcome recorded: wake whoever waits for it in this process."""
        CURRENT.set(attempt.parent)
        self.heart.end(attempt)
        done = self._waiters.pop(attempt.key.digest, None)
        if done is not None:
            done.set()


def answer_of(plan: Plan, doubtful: Record) -> Answer:
    """The far side's answer. An error of the asking code is no answer: it never counts as "did not happen"."""
    ask: Any = plan.policy.unknown
    try:
        answer = ask(plan.question(doubtful))
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


def _wait(done: threading.Event, seconds: float) -> None:
    done.wait(seconds)
