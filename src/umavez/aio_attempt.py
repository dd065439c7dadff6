"""AsyncAttempt: one run of an operation, from tasks. The twin of `attempt.py`; see there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

from umavez.aio_lock import TaskLock
from umavez.core.drafts import checkpointing, doubting, failing, renewing, rerunning, settling
from umavez.core.flow import Flow, Swap, SwapFlow, Swapped
from umavez.core.key import Key
from umavez.core.protocol import Claim, change, changed
from umavez.core.record import Draft, Settled
from umavez.core.resolution import noted
from umavez.errors import ClaimLost, NotStorable, OperationInProgress, StoreError, StoreUncertain, UmavezError
from umavez.outcome import Observe, Outcome, downstream_key
from umavez.plan import Plan, message
from umavez.stores import AsyncStore

T = TypeVar("T")
PAUSES = (0.05, 0.25, 1.0)
"""Seconds between tries to record an outcome: the effect has happened, so a hiccup of the store must not lose it."""

_new = tuple.__new__  # as in core/drafts.py, and for the same reason

CURRENT: ContextVar[AsyncAttempt | None] = ContextVar("umavez_async_attempt", default=None)


async def drive(flow: Flow[T] | SwapFlow[T], store: AsyncStore) -> T:
    """Carry out a flow's commands on `store`; returns what the flow returns.

    A swap whose answer was lost is sent again: one that was done is recognised by its stamp.
    """
    try:
        command = next(flow)
        while True:
            if isinstance(command, Swap):
                expected, draft = command
                try:
                    reply = await store.swap(expected, draft)
                except StoreUncertain:
                    reply = await store.swap(expected, draft)
                command = flow.send(reply)
            else:
                command = flow.send(await store.read(command.key))  # type: ignore[arg-type]  # a SwapFlow never reads
    except StopIteration as done:
        result: T = done.value
        return result


class AsyncAttempt:
    """One run of an operation. Owns the claim; every change of the record goes through it, one at a time.

    `replayed`: it ran before, and `outcome` is its value; the block has nothing to do.
    `fence`: rises with every claim; hand it to systems that can compare. `number`: 1 for the first attempt.
    `progress`: what the last checkpoint of an earlier attempt kept.
    """

    outcome: Any = None
    lost = False
    done = False
    replayed = False
    parent: AsyncAttempt | None = None
    _writes = 0

    def __init__(
        self,
        store: AsyncStore,
        plan: Plan,
        key: Key,
        claim: Claim | None,
        observe: Observe,
        replayed: bool = False,
        pauses: tuple[float, ...] = PAUSES,
    ) -> None:
        self.key = key
        self.plan = plan
        self._claim = claim
        self._store = store
        self._observe = observe
        self._pauses = pauses
        self._lock = TaskLock()
        if claim is None:
            self.fence, self.number, self._owner = 0, 1, ""
        else:
            self.fence, self.number, self._owner = claim.fence, claim.draft.attempt, claim.draft.stamp
        if replayed:
            self.replayed = self.done = True
        self.beaten_at = self.began_at = time.monotonic()

    @property
    def progress(self) -> Any:
        """What was kept by the last checkpoint, or None."""
        text = self._claim.draft.progress if self._claim is not None else None
        return None if text is None else self.plan.codec.decode(text, self.key)

    def downstream_key(self, purpose: str = "") -> str:
        """A key to hand to the far side: the same for every attempt, another for every `purpose`."""
        return downstream_key(self.key, purpose)

    def check(self) -> None:
        """Raise ClaimLost if another attempt has taken over. Call it before an effect that cannot be undone."""
        if self.lost:
            raise ClaimLost(self.key)

    async def checkpoint(self, progress: Any) -> None:
        """Keep how far this attempt got, for whoever continues; renews the lease too. Raises ClaimLost."""
        text = self.plan.codec.encode(progress, self.key)
        await self._write(checkpointing, (text,))

    async def renew(self) -> None:
        """Extend the lease. Raises ClaimLost; a heartbeat does this by itself while the code runs."""
        if not self.done:
            await self._write(renewing, (), pauses=())

    async def succeed(self, value: Any = None) -> Outcome[Any]:
        """Keep `value` as the outcome. Raises ClaimLost, or NotStorable (it happened, but cannot be replayed)."""
        try:
            settled, reason = self.plan.kept(self.key, value)
        except NotStorable as error:
            await self._write(settling, (Settled(True, None), self.plan.keep_ms, message(error)), "succeeded")
            error.value = value
            raise
        await self._write(settling, (settled, self.plan.keep_ms, reason), "succeeded")
        self.outcome = value
        return _new(Outcome, (value, False, self.number, self.key))

    async def refuse(self, error: Exception) -> NoReturn:
        """Keep `error` as the final outcome and raise it, now and on every replay."""
        await self._refuse(error, message(error))
        raise error

    def go_apart(self, store: AsyncStore) -> None:
        """Go on through `store`: the transaction that this attempt was joined to has ended under it.

        Where it was committed, the claim stands and can be settled; rolled back, settling raises ClaimLost.
        """
        self._store = store

    async def adopt(self, value: Any, evidence: str) -> Outcome[Any]:
        """Keep what the far side says happened, with the evidence for it."""
        settled, reason = self.plan.kept(self.key, value)
        words = (settled, self.plan.keep_ms, reason, self._noted("adopted", evidence))
        await self._write(settling, words, "adopted")
        return Outcome(value, True, self.number, self.key)

    async def rerun(self, evidence: str) -> None:
        """Go on to run: the far side says it never happened."""
        await self._write(rerunning, (self._noted("not happened", evidence),))
        self.number += 1

    async def give_up(self, evidence: str) -> None:
        """Leave the outcome unknown: the far side could not tell."""
        await self._write(doubting, (evidence, self._noted("cannot tell", evidence)), "unknown")

    async def exhaust(self, evidence: str) -> None:
        """Leave it failed: it never happened, and no retry is left."""
        await self._write(failing, (evidence, self.plan.keep_ms), "failed")

    async def fail(self, error: BaseException) -> None:
        """Record what the policy makes of `error`: a final refusal, a failure that frees the key, or doubt."""
        if self.done or self.lost:
            return
        policy, text = self.plan.policy, message(error)
        if isinstance(error, policy.final):
            await self._refuse(error, text)
        elif isinstance(error, policy.free) or policy.reruns():
            await self._write(failing, (text, self.plan.keep_ms), "failed")
        else:
            await self._write(doubting, (text,), "unknown")

    async def fail_quietly(self, error: BaseException) -> None:
        """As `fail`; a store that cannot be reached adds a note to `error` instead of hiding it."""
        try:
            await self.fail(error)
        except (StoreError, ClaimLost, NotStorable) as trouble:
            error.add_note(f"umavez could not record this failure: {trouble}")

    async def _refuse(self, error: BaseException, text: str) -> None:
        await self._write(settling, (self.plan.refusal(self.key, error), self.plan.keep_ms, text), "refused")

    async def _write(
        self,
        drafting: Callable[..., Draft],
        words: tuple[Any, ...],
        ends: str | None = None,
        pauses: tuple[float, ...] | None = None,
    ) -> None:
        """Put what `drafting` makes of the claim's draft, a new stamp and `words` in the draft's place.

        `ends`: the attempt is over with it, and observers hear this word. Raises ClaimLost.
        """
        async with self._lock:
            claim = self._claim
            if self.done or claim is None or self.lost:
                return self._too_late(ends)
            self._writes += 1
            draft = drafting(claim.draft, f"{self._owner}/{self._writes}", *words)
            # Before the send: the lease runs from the store's write, which is not later than the answer.
            sent_at = time.monotonic()
            try:
                reply = await self._store.swap(claim.draft.stamp, draft)
                if type(reply) is Swapped:
                    self._claim = _new(Claim, (draft, claim.fence, reply.now))
                else:
                    self._claim = await drive(changed(claim, draft, reply), self._store)
            except (StoreError, OperationInProgress) as error:
                self._claim = await self._insisted(claim, draft, self._pauses if pauses is None else pauses, error)
            except ClaimLost:
                raise self._losing() from None
            self.beaten_at = sent_at
            if ends is not None:
                self.done = True
        if ends is not None:
            self._observe(ends, self.key, self.number, time.monotonic() - self.began_at)
        return None

    def _too_late(self, ends: str | None) -> None:
        """What a write that comes after the end is told; a renewal has nothing left to do."""
        if self.done and ends is None:
            return
        if self.replayed:
            raise UmavezError(f"{self.plan.operation} was replayed; look at .outcome instead of settling it again.")
        if self.done:
            raise UmavezError(f"This attempt at {self.plan.operation} is settled already.")
        raise ClaimLost(self.key)

    def _losing(self) -> ClaimLost:
        self.lost = True
        self._observe("lost", self.key, self.number)
        return ClaimLost(self.key)

    async def _insisted(self, claim: Claim, draft: Draft, pauses: tuple[float, ...], error: UmavezError) -> Claim:
        # What may have been written is looked at again at once; what was not may wait for the store to recover.
        for pause in (0.0, *pauses) if isinstance(error, StoreUncertain) else pauses:
            await asyncio.sleep(pause)
            try:
                return await drive(change(claim, draft), self._store)
            except (StoreError, OperationInProgress) as again:
                error = again
            except ClaimLost:
                raise self._losing() from None
        raise error

    def _noted(self, what: str, reason: str) -> str:
        claim = self._claim
        before = None if claim is None else claim.draft.evidence
        return noted(before, 0 if claim is None else claim.granted_at, what, "far side", reason)
