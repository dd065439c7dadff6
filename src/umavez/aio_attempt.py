"""AsyncAttempt: one run of an operation, from tasks. The twin of `attempt.py`; see there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

from umavez.core.flow import Flow, Swap, SwapFlow
from umavez.core.key import Key
from umavez.core.protocol import Claim, checkpoint, doubt, fail, renew, rerun, settle
from umavez.core.record import Settled
from umavez.core.resolution import noted
from umavez.errors import ClaimLost, NotStorable, OperationInProgress, StoreError, StoreUncertain, UmavezError
from umavez.outcome import Observe, Outcome, downstream_key
from umavez.plan import Plan, message
from umavez.stores import AsyncStore

T = TypeVar("T")
PAUSES = (0.05, 0.25, 1.0)
"""Seconds between tries to record an outcome: the effect has happened, so a hiccup of the store must not lose it."""

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
        self.outcome: Any = None
        self.replayed = replayed
        self.lost = False
        self.done = replayed
        self.fence = 0 if claim is None else claim.fence
        self.number = 1 if claim is None else claim.draft.attempt
        self.parent: AsyncAttempt | None = None
        self.beaten_at = self.began_at = time.monotonic()
        self._claim = claim
        self._store = store
        self._observe = observe
        self._lock = asyncio.Lock()
        self._writes = 0
        self._pauses = pauses
        self._owner = "" if claim is None else claim.draft.stamp

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
        await self._write(lambda claim, stamp: checkpoint(claim, text, stamp), self._pauses)

    async def renew(self) -> None:
        """Extend the lease. Raises ClaimLost; a heartbeat does this by itself while the code runs."""
        if not self.done:
            await self._write(renew, ())

    async def succeed(self, value: Any = None) -> Outcome[Any]:
        """Keep `value` as the outcome. Raises ClaimLost, or NotStorable (it happened, but cannot be replayed)."""
        try:
            settled, reason = self.plan.kept(self.key, value)
        except NotStorable as error:
            await self._settle(Settled(True, None), message(error), "succeeded")
            error.value = value
            raise
        await self._settle(settled, reason, "succeeded")
        self.outcome = value
        return Outcome(value, False, self.number, self.key)

    async def refuse(self, error: Exception) -> NoReturn:
        """Keep `error` as the final outcome and raise it, now and on every replay."""
        await self._settle(self.plan.refusal(self.key, error), message(error), "refused")
        raise error

    async def adopt(self, value: Any, evidence: str) -> Outcome[Any]:
        """Keep what the far side says happened, with the evidence for it."""
        settled, reason = self.plan.kept(self.key, value)
        await self._settle(settled, reason, "adopted", self._noted("adopted", evidence))
        return Outcome(value, True, self.number, self.key)

    async def rerun(self, evidence: str) -> None:
        """Go on to run: the far side says it never happened."""
        text = self._noted("not happened", evidence)
        await self._write(lambda claim, stamp: rerun(claim, text, stamp), self._pauses)
        self.number += 1

    async def give_up(self, evidence: str) -> None:
        """Leave the outcome unknown: the far side could not tell."""
        text = self._noted("cannot tell", evidence)
        await self._end("unknown", lambda claim, stamp: doubt(claim, evidence, stamp, text))

    async def exhaust(self, evidence: str) -> None:
        """Leave it failed: it never happened, and no retry is left."""
        await self._end("failed", lambda claim, stamp: fail(claim, evidence, self.plan.keep_ms, stamp))

    async def fail(self, error: BaseException) -> None:
        """Record what the policy makes of `error`: a final refusal, a failure that frees the key, or doubt."""
        if self.done or self.lost:
            return
        policy, text = self.plan.policy, message(error)
        if isinstance(error, policy.final):
            await self._settle(self.plan.refusal(self.key, error), text, "refused")
        elif isinstance(error, policy.free) or policy.reruns():
            await self._end("failed", lambda claim, stamp: fail(claim, text, self.plan.keep_ms, stamp))
        else:
            await self._end("unknown", lambda claim, stamp: doubt(claim, text, stamp))

    async def fail_quietly(self, error: BaseException) -> None:
        """As `fail`; a store that cannot be reached adds a note to `error` instead of hiding it."""
        try:
            await self.fail(error)
        except (StoreError, ClaimLost, NotStorable) as trouble:
            error.add_note(f"umavez could not record this failure: {trouble}")

    async def _settle(self, settled: Settled, error: str | None, kind: str, evidence: str | None = None) -> None:
        keep = self.plan.keep_ms
        await self._end(kind, lambda claim, stamp: settle(claim, settled, keep, stamp, error=error, evidence=evidence))

    async def _end(self, kind: str, change: Callable[[Claim, str], SwapFlow[Claim]]) -> None:
        if self.replayed:
            raise UmavezError(f"{self.plan.operation} was replayed; look at .outcome instead of settling it again.")
        if self.done:
            raise UmavezError(f"This attempt at {self.plan.operation} is settled already.")
        await self._write(change, self._pauses, ends=True)
        self._observe(kind, self.key, self.number, time.monotonic() - self.began_at)

    async def _write(
        self, change: Callable[[Claim, str], SwapFlow[Claim]], pauses: tuple[float, ...], *, ends: bool = False
    ) -> None:
        async with self._lock:
            if self.done:
                return
            if self._claim is None or self.lost:
                raise ClaimLost(self.key)
            self._writes += 1
            # Before the send: the lease runs from the store's write, which is not later than the answer.
            sent_at = time.monotonic()
            try:
                self._claim = await self._driven(self._claim, change, f"{self._owner}/{self._writes}", pauses)
            except ClaimLost:
                self.lost = True
                self._observe("lost", self.key, self.number)
                raise
            self.done = ends
            self.beaten_at = sent_at

    async def _driven(
        self, claim: Claim, change: Callable[[Claim, str], SwapFlow[Claim]], stamp: str, pauses: tuple[float, ...]
    ) -> Claim:
        """Carry out one change, trying again while the store fails: a repeated swap is recognised by its stamp."""
        for pause in pauses:
            try:
                return await drive(change(claim, stamp), self._store)
            except (StoreError, OperationInProgress):
                await asyncio.sleep(pause)
        return await drive(change(claim, stamp), self._store)

    def _noted(self, what: str, reason: str) -> str:
        claim = self._claim
        before = None if claim is None else claim.draft.evidence
        return noted(before, 0 if claim is None else claim.granted_at, what, "far side", reason)
