# Written by tools/sync.py from src/umavez/_async/admission.py: change that, then run `make format`.
"""Admission: from an intent to an attempt, a replay, or the error that says why not."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any, NoReturn, assert_never

from umavez._sync.attempt import Attempt, drive, swap_again
from umavez._sync.chronicle import announce, remark
from umavez._sync.giving_back import Returns
from umavez.concurrency.aside import Aside, CutOff, Late
from umavez.concurrency.heartbeat import Heartbeats
from umavez.concurrency.unbroken import Cancelled
from umavez.concurrency.waiting import Bell, awaited
from umavez.core.asking import Adopt, Consequence, Exhaust, GiveUp, Rerun, consequence
from umavez.core.drafts import claiming, forgoing
from umavez.core.flow import SwapFlow, Swapped
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
from umavez.core.telling.events import MISMATCHED
from umavez.core.telling.origin import made_in, traced
from umavez.engine.current import CURRENT, running
from umavez.engine.declaration import Plan, message
from umavez.engine.insistence import Insistence, not_at_all, while_the_lease_lives
from umavez.engine.observing import Observers
from umavez.engine.outcome import Outcome
from umavez.engine.stamps import STAMPS
from umavez.errors import (
    KeyReused,
    MaxRetriesExceeded,
    OperationInProgress,
    OutcomeUnknown,
    Reentered,
    StoreUncertain,
)
from umavez.stores import Store

_new = tuple.__new__  # see core/drafts.py, where its gain is told
POLLS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25)
"""Seconds between looks at a key held by another process; one held here wakes its waiters itself."""

MOST_OUT = 32
"""Questions of one operation that were left behind without an answer and may still run; beyond them nobody is asked."""

Entered = Attempt | Record | Outcome[Any]
"""An attempt to run, a settled record to replay, or an outcome adopted from the far side."""


class Admission:
    """Lets callers in: asks the store, waits for a rival, asks the far side, and begins attempts."""

    def __init__(
        self,
        store: Store,
        observe: Observers,
        insistence: Insistence = while_the_lease_lives,
        aside: type[Aside] = Aside,
    ) -> None:
        self._store = store
        self._observe = observe
        self._heard, self._followed = bool(observe.all), bool(observe.followers)
        self._traced = bool(observe.tracers)
        self._insistence = insistence
        self._waiters: dict[bytes, Bell] = {}
        self._aside = aside
        self._asides: dict[str, Aside] = {}
        self.heartbeats = Heartbeats(partial(announce, store))
        self.returns = Returns(store)

    def enter(self, plan: Plan, intent: Intent, store: Store | None = None) -> Entered:
        """What the caller may do. Raises the error that names why it may do nothing.

        `store` is that of a caller who joins a transaction: its writes are never sent again after a pause, since a
        transaction that failed has to be rolled back. This is `drive(admit(…))` with its first
        step written out, since nearly every call ends there: 4 to 6 µs of a first call's 20.
        """
        if CURRENT.get() is not None:
            self.refuse_reentry(intent.key, plan)
        insistence: Insistence = not_at_all
        if store is None:
            store, insistence = self._store, self._insistence
        intent = self._from_here(intent) if self._traced else intent
        policy = plan.policy
        draft = claiming(intent, policy, STAMPS.owner())
        try:
            try:
                reply = store.swap(None, draft)
            except StoreUncertain as uncertain:
                # Sent again as it is: a claim that was written is recognised by its stamp.
                reply = swap_again(store, None, draft, uncertain)
        except Cancelled:
            self._left(plan, draft.key, draft.stamp, store)
            raise
        if type(reply) is Swapped:
            claim = _new(Claim, (draft, reply.fence, reply.now))
            return Attempt(store, plan, intent.key, claim, self._observe, False, insistence)
        judgement = glimpsed(intent, policy, draft, reply)
        if type(judgement) is Replay:
            record = judgement.record
            if self._heard:
                self._observe("replayed", record.key, record.attempt, 0.0, record.fence, "", made_in(record))
            return record
        flow = admitted(intent, policy, draft, reply, judgement)
        verdict = self._carried(flow, plan, draft.key, draft.stamp, store)
        return self._entered(plan, intent, verdict, store, insistence)

    def _carried(self, flow: SwapFlow[Verdict], plan: Plan, key: Key, stamp: str, store: Store) -> Verdict:
        try:
            return drive(flow, store)
        except Cancelled:
            self._left_in_doubt(plan, key, stamp, store)
            raise

    def _left_in_doubt(self, plan: Plan, key: Key, stamp: str, store: Store) -> None:
        """As `_left`, where an earlier attempt may stand behind the claim: one to ask about it frees nothing.

        It lapses, and the far side is asked again. Where doubts are held, nothing is claimed that is in doubt.
        """
        if plan.policy.holds():
            self._left(plan, key, stamp, store)

    def _left(self, plan: Plan, key: Key, stamp: str, store: Store) -> None:
        """The caller was cancelled while its claim was made. One in a transaction is the caller's to roll back."""
        if store is self._store:
            self.returns.begin(key, stamp, lambda record, new: forgoing(record, new, plan.keep_ms))

    def _from_here(self, intent: Intent) -> Intent:
        """The intent with the trace that is current."""
        return intent._replace(origin=traced(intent.origin, self._observe.trace()))

    def _verdict(self, plan: Plan, intent: Intent, store: Store) -> Verdict:
        stamp = STAMPS.owner()
        return self._carried(admit(intent, plan.policy, stamp), plan, intent.key, stamp, store)

    def _waited(self, plan: Plan, intent: Intent, verdict: Verdict) -> Verdict:
        """Ask again until the key is settled or free, at most for the policy's `wait`."""
        began = time.monotonic()
        deadline = began + plan.policy.wait
        polls = iter(POLLS)
        poll = POLLS[-1]
        while type(verdict) is Busy and time.monotonic() < deadline:
            poll = next(polls, POLLS[-1])
            done = self._waiters.setdefault(intent.key.digest, Bell())
            try:
                done.wait(min(poll, max(deadline - time.monotonic(), 0.0)))
            finally:
                # Whoever else waits with it looks by itself within a poll; kept, one would be left for every key that
                # another process held.
                self._waiters.pop(intent.key.digest, None)
            verdict = self._verdict(plan, intent, self._store)
        self._observe("waited", intent.key, 0, time.monotonic() - began)
        return verdict

    def _entered(self, plan: Plan, intent: Intent, verdict: Verdict, store: Store, insistence: Insistence) -> Entered:
        # Not from within a caller's transaction: the rival may wait for its locks, and a claim that a later look got
        # through the engine's own connection would outlive its rollback.
        if type(verdict) is Busy and plan.policy.wait > 0 and store is self._store:
            verdict = self._waited(plan, intent, verdict)
        key = intent.key
        match verdict:
            case Granted(claim, taken_over):
                if taken_over is not None:
                    self._observe("taken_over", key, claim.draft.attempt, 0.0, claim.fence)
                return Attempt(store, plan, key, claim, self._observe, False, insistence)
            case Asking(claim, doubtful):
                return self._asked(doubtful, Attempt(store, plan, key, claim, self._observe, False, insistence))
            case Replay(record):
                self._observe("replayed", key, record.attempt, 0.0, record.fence, "", made_in(record))
                return record
            case Mismatched():
                remark(store, key, MISMATCHED, 0, 0, STAMPS.owner())
                return self._refuse(key, verdict)
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
                self._observe("held", key, record.attempt, 0.0, record.fence)
                raise OutcomeUnknown(key)
            case _:
                assert_never(verdict)

    def _asked(self, doubtful: Record, attempt: Attempt) -> Entered:
        plan = attempt.plan
        aside = self._asides.setdefault(plan.operation, self._aside())
        match self.ask(doubtful, attempt, aside, plan.policy.patience):
            case Adopt(value, evidence):
                return attempt.adopt(value, evidence)
            case GiveUp(evidence, silent):
                attempt.give_up(evidence, doubtful.status)
                raise OutcomeUnknown(doubtful.key, evidence if silent else None)
            case Exhaust(evidence):
                attempt.free(evidence)
                raise MaxRetriesExceeded(doubtful.key, doubtful.retry_count, doubtful.error)
            case Rerun(evidence):
                attempt.rerun(evidence)
                return attempt

    def ask(
        self,
        doubtful: Record,
        attempt: Attempt,
        aside: Aside,
        patience: float,
        stop: threading.Event | None = None,
    ) -> Consequence:
        """Ask the far side about an attempt without an answer, holding the claim of `attempt` meanwhile.

        Waits for `patience` seconds, or until `stop`, and no longer. An answer that comes later is nobody's any more.
        """
        plan = attempt.plan
        if aside.out >= MOST_OUT:
            return GiveUp(f"not asked: {MOST_OUT} earlier questions to the far side are without an answer", True)
        if plan.policy.heartbeat:
            self.heartbeats.add(attempt)
        try:
            answer = aside.call(patience, lambda: _answer_of(plan, doubtful, attempt.fence), stop)
        except Late:
            if stop is not None and stop.is_set():
                return GiveUp("the asking was stopped before the far side answered", True)
            return GiveUp(f"the far side did not answer within {patience:g} s", True)
        except CutOff as cut:
            return GiveUp(f"the far side was not heard: {cut}", True)
        finally:
            self.heartbeats.discard(attempt)
        self._observe("asked", doubtful.key, doubtful.attempt)
        return consequence(answer, doubtful, plan.policy)

    def refuse_reentry(self, key: Key, plan: Plan) -> None:
        """Raise Reentered when an attempt at `key` in this store is running around this one: it would wait for itself.

        One that has ended is no obstacle: what it started (a task, a thread) may go on after it.
        """
        around = CURRENT.get()
        while around is not None:
            if around.home is self._store and around.key == key:
                raise Reentered(key, plan.policy.lease)
            around = around.parent

    def begin(self, attempt: Attempt) -> None:
        """The attempt's code starts: it is the current one, and its lease is kept alive."""
        around = CURRENT.get()
        attempt.parent = None if around is None else running(around)
        attempt.home = self._store
        CURRENT.set(attempt)
        if attempt.plan.policy.heartbeat:
            self.heartbeats.add(attempt)
        if self._followed:
            self._observe.start(attempt)

    def end(self, attempt: Attempt) -> None:
        """The attempt's code is over and its outcome recorded: wake whoever waits for it in this process."""
        if self._followed:
            self._observe.end(attempt)
        CURRENT.set(attempt.parent)
        attempt.home = None
        self.heartbeats.attempts.discard(attempt)
        if self._waiters and (done := self._waiters.pop(attempt.key.digest, None)) is not None:
            done.ring()


def _answer_of(plan: Plan, doubtful: Record, fence: int) -> Answer:
    """The far side's answer. An error of the asking code is no answer: it never counts as "did not happen"."""
    ask: Any = plan.policy.unknown
    try:
        answer = awaited(ask(plan.question(doubtful, fence)))
    except Exception as error:  # noqa: BLE001  # whatever it raises, the outcome stays unknown
        return CannotTell(message(error))
    if isinstance(answer, Happened | NotHappened | CannotTell):
        return answer
    return CannotTell(f"unknown= answered {type(answer).__name__} instead of Happened, NotHappened or CannotTell")
