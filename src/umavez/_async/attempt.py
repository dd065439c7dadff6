"""AsyncAttempt: one run of an operation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import chain
from typing import Any, NoReturn, TypeVar

from umavez._async.chronicle import remark
from umavez.concurrency.locks import AsyncLock
from umavez.core.drafts import checkpointing, doubting, failing, renewing, rerunning, settling
from umavez.core.flow import Flow, Swap, SwapFlow, Swapped, SwapReply
from umavez.core.key import Key
from umavez.core.policy import named
from umavez.core.protocol import Claim, change, changed
from umavez.core.record import Draft, Settled, Status
from umavez.core.resolution import noted
from umavez.core.telling.events import LOST
from umavez.engine.declaration import Plan, message
from umavez.engine.insistence import Insistence, not_at_all, while_the_lease_lives
from umavez.engine.observing import Observers, error_type
from umavez.engine.outcome import Outcome, downstream_key
from umavez.engine.stamps import STAMPS
from umavez.engine.traces import with_origin, with_trace
from umavez.errors import (
    ClaimLost,
    NotStorable,
    OperationInProgress,
    ReplayIgnored,
    StoreError,
    StoreUnavailable,
    StoreUncertain,
    UmavezError,
)
from umavez.sql.joining import async_driver_connection
from umavez.stores import AsyncStore

T = TypeVar("T")

_new = tuple.__new__  # see core/drafts.py, where its gain is told


async def drive(flow: Flow[T] | SwapFlow[T], store: AsyncStore) -> T:
    """Carry out a flow's commands on `store`; returns what the flow returns.

    A swap whose answer was lost is sent again: one that was done is recognised by its stamp.
    """
    try:
        command = next(flow)
        while True:
            if isinstance(command, Swap):
                expected, draft = command
                if draft.event is not None:
                    draft = with_trace(draft)
                try:
                    reply = await store.swap(expected, draft)
                except StoreUncertain as uncertain:
                    reply = await swap_again(store, expected, draft, uncertain)
                command = flow.send(reply)
            else:
                command = flow.send(await store.read(command.key))  # type: ignore[arg-type]  # a SwapFlow never reads
    except StopIteration as done:
        result: T = done.value
        return result


async def swap_again(store: AsyncStore, expected: str | None, draft: Draft, uncertain: StoreUncertain) -> SwapReply:
    """Send a swap again whose answer was lost. A store that is away now says nothing about then: it stays uncertain."""
    try:
        return await store.swap(expected, draft)
    except StoreUnavailable as away:
        raise uncertain from away


class AsyncAttempt:
    """One run of an operation. Owns the claim; every change of the record goes through it, one at a time.

    `fence`: rises with every claim; hand it to systems that can compare. `number`: 1 for the first attempt.
    `progress`: what the last checkpoint of an earlier attempt kept.
    """

    outcome: Any = None
    lost = False
    done = False
    is_replay = False
    parent: Any = None
    """The attempt around this one, of either shell."""
    _looked = False
    home: Any = None
    """The store of the engine in which it runs; None before and after."""
    _writes = 0
    ended_as = ""
    """The word that observers heard of its end; empty before, and where it could not be written."""
    followed: Any = ()
    """Who follows the run, and what each was given at its start."""
    failed_with = ""
    """The type of the error that it ended with."""
    _happened = False
    """Its code has said that it succeeded."""

    def __init__(
        self,
        store: AsyncStore,
        plan: Plan,
        key: Key,
        claim: Claim | None,
        observe: Observers,
        replayed: bool = False,
        insistence: Insistence = while_the_lease_lives,
    ) -> None:
        self.key = key
        self.plan = plan
        self._claim = claim
        self._store = store
        self._observe = observe
        self._insistence = insistence
        self._lock = AsyncLock()
        self._era = STAMPS.era
        if claim is None:
            self.fence, self.number, self._owner = 0, 1, ""
        else:
            draft = claim.draft
            self.fence, self.number, self._owner = claim.fence, draft.attempt, draft.stamp
        if replayed:
            self.is_replay = self.done = True
        self.renewed_at = self.began_at = time.monotonic()

    @property
    def replayed(self) -> bool:
        """Whether it ran before: `outcome` is its value then, and the block has nothing to do. Every block must ask."""
        self._looked = True
        return self.is_replay

    def refuse_ignored_replay(self) -> None:
        """Raise ReplayIgnored where a replayed block ended without asking whether it was one."""
        if not self._looked:
            raise ReplayIgnored(self.key)

    @property
    def progress(self) -> Any:
        """What was kept by the last checkpoint, or None."""
        text = self._claim.draft.progress if self._claim is not None else None
        return None if text is None else self.plan.codec.decode(text, self.key)

    def downstream_key(self, purpose: str = "") -> str:
        """A key to hand to the far side: the same for every attempt, another for every `purpose`."""
        return downstream_key(self.key, purpose)

    async def check(self) -> None:
        """Raise ClaimLost if another attempt has taken over, or may. Call it before an effect that cannot be undone.

        Asks the store when the last heartbeat is old, as after a freeze: when half a lease has passed since. An attempt
        that has ended without success holds nothing any more: what it began and left behind, such as the other calls of
        a gather(), must stop.
        """
        if self.lost or (self.done and not (self._happened or self.is_replay)):
            raise ClaimLost(self.key)
        if time.monotonic() - self.renewed_at > self.plan.policy.lease / 2:
            await self.renew()

    async def checkpoint(self, progress: Any) -> None:
        """Keep how far this attempt got, for whoever continues; renews the lease too. Raises ClaimLost."""
        text = self.plan.codec.encode(progress, self.key)
        await self._write(checkpointing, (text,))

    async def renew(self) -> None:
        """Extend the lease. Raises ClaimLost; a heartbeat does this by itself while the code runs."""
        if not self.done:
            await self._write(renewing, (), insistence=not_at_all)

    async def succeed(self, value: Any = None, *, connection: Any = None) -> Outcome[Any]:
        """Keep `value` as the outcome. Raises ClaimLost, or NotStorable (it happened, but cannot be replayed).

        With `connection` it is part of the caller's own transaction there. Rolled back, the claim stands until its
        lease is over, and whoever comes then asks what became of it.
        """
        if connection is not None:
            return await self._succeed_within(connection, value)
        self._happened = True
        try:
            settled, reason = self.plan.kept(self.key, value)
        except NotStorable as error:
            await self._write(settling, (Settled(True, None), self.plan.keep_ms, message(error)), "succeeded")
            error.value = value
            raise
        try:
            await self._write(settling, (settled, self.plan.keep_ms, reason), "succeeded")
        except NotStorable as error:
            # This store takes less than the policy allows. It has happened, and must not run again for that.
            await self._write(settling, (Settled(True, None), self.plan.keep_ms, message(error)), "succeeded")
        self.outcome = value
        return _new(Outcome, (value, False, self.number, self.key))

    async def _succeed_within(self, connection: Any, value: Any) -> Outcome[Any]:
        apart, insistence = self._store, self._insistence
        self.go_apart(apart.joined(await async_driver_connection(connection)), not_at_all)
        try:
            return await self.succeed(value)
        finally:
            self.go_apart(apart, insistence)

    async def refuse(self, error: Exception) -> NoReturn:
        """Keep `error` as the final outcome and raise it, now and on every replay."""
        await self._refuse(error, message(error))
        raise error

    def go_apart(self, store: AsyncStore, insistence: Insistence | None = None) -> None:
        """Go on through `store`: the transaction that this attempt was joined to has ended under it.

        Where it was committed, the claim stands and can be settled; rolled back, settling raises ClaimLost.
        """
        self._store = store
        self._insistence = insistence or self._insistence

    def leave_unrecorded(self) -> None:
        """Write nothing more, because the effect has happened and could not be recorded.

        A failure written now would let it run again at once; what stands is for the lease, or whoever asks, to show.
        """
        self.done = True

    async def adopt(self, value: Any, evidence: str) -> Outcome[Any]:
        """Keep what the far side says happened, with the evidence for it. Raises NotStorable, as `succeed` does."""
        try:
            settled, reason = self.plan.kept(self.key, value)
        except NotStorable as error:
            unkept = (Settled(True, None), self.plan.keep_ms, message(error), self._noted("adopted", evidence))
            await self._write(settling, unkept, "adopted")
            error.value = value
            raise
        words = (settled, self.plan.keep_ms, reason, self._noted("adopted", evidence))
        await self._write(settling, words, "adopted")
        return Outcome(value, True, self.number, self.key)

    async def rerun(self, evidence: str) -> None:
        """Go on to run: the far side says it never happened."""
        await self._write(rerunning, (self._noted("not happened", evidence),))
        self.number += 1

    async def give_up(self, evidence: str, was: Status = Status.PENDING) -> None:
        """Leave the outcome unknown: the far side could not tell. It `was` so before, or its holder is gone."""
        kind = "held" if was is Status.UNKNOWN else "unknown"
        await self._write(doubting, (evidence, self._noted("cannot tell", evidence)), kind)

    async def free(self, evidence: str) -> None:
        """Leave it failed: it never happened. Counts no attempt, for none was made."""
        words = (evidence, self.plan.keep_ms, self._noted("not happened", evidence))
        await self._write(failing, words, "failed")

    async def fail(self, error: BaseException) -> None:
        """Record what the policy makes of `error`: a final refusal, a failure that frees the key, or doubt.

        Raises ClaimLost.
        """
        if self.done or (self.lost and isinstance(error, ClaimLost)):
            return
        policy, text = self.plan.policy, message(error)
        self.failed_with = error_type(error)
        if self._happened:
            # The code had said what it did; that it could not be recorded says nothing about the effect.
            await self._write(doubting, (text,), "unknown")
        elif named(error, policy.final):
            await self._refuse(error, text)
        elif named(error, policy.free) or policy.reruns():
            await self._write(failing, (text, self.plan.keep_ms), "failed")
        else:
            await self._write(doubting, (text,), "unknown")

    async def fail_quietly(self, error: BaseException) -> None:
        """As `fail`; what goes wrong with that adds a note to `error` instead of hiding it."""
        try:
            await self.fail(error)
        except Exception as trouble:  # noqa: BLE001  # the caller's own error is what the caller must see
            error.add_note(f"umavez could not record this failure: {trouble}")

    async def _refuse(self, error: BaseException, text: str) -> None:
        await self._write(settling, (self.plan.refusal(self.key, error), self.plan.keep_ms, text), "refused")

    async def _write(
        self,
        drafting: Callable[..., Draft],
        words: tuple[Any, ...],
        ends: str | None = None,
        insistence: Insistence | None = None,
    ) -> None:
        """Put what `drafting` makes of the claim's draft, a new stamp and `words` in the draft's place.

        `ends`: the attempt is over with it, and observers hear this word. Raises ClaimLost.
        """
        if self._era is not STAMPS.era:
            self._go_apart_from_parent()
        async with self._lock:
            claim = self._claim
            if self.done or claim is None or self.lost:
                return self._too_late(ends)
            self._writes += 1
            was = claim.draft
            draft = drafting(was, f"{self._owner}/{self._writes}", *words)
            draft = draft if draft.event is None and not self.followed else self._told(draft, claim, ends)
            # Before the send: the lease runs from the store's write, which is not later than the answer.
            sent_at = time.monotonic()
            try:
                reply = await self._store.swap(was.stamp, draft)
                if type(reply) is Swapped:
                    self._claim = _new(Claim, (draft, self.fence, reply.now))
                else:
                    self._claim = await drive(changed(claim, draft, reply), self._store)
            except (StoreError, OperationInProgress) as error:
                self._claim = await self._insisted(claim, draft, insistence or self._insistence, error)
            except ClaimLost:
                raise await self._losing() from None
            self.renewed_at = sent_at
            if ends is not None:
                self.done = True
        if ends is not None and self._observe.all:
            self.ended_as = ends
            seconds = time.monotonic() - self.began_at
            self._observe(ends, self.key, self.number, seconds, self.fence, self.failed_with)
        return None

    def _told(self, draft: Draft, claim: Claim, ends: str | None) -> Draft:
        """The draft with the trace of its event, and at the end with the origin that a claim without one had."""
        draft = draft if draft.event is None else with_trace(draft)
        from_nowhere = self.followed and ends is not None and claim.draft.origin is None
        return with_origin(draft, self.followed) if from_nowhere else draft

    def _go_apart_from_parent(self) -> None:
        """Bear another name than the attempt in the parent process, from which this one was forked.

        Both may try to write, and each must learn whether the other did: under one name they would take each other's
        writes for their own. The lock may be held by a thread that exists only there.
        """
        self._era, self._owner, self._lock = STAMPS.era, STAMPS.owner(), AsyncLock()

    def _too_late(self, ends: str | None) -> None:
        """What a write that comes after the end is told; a renewal has nothing left to do."""
        if self.done and ends is None:
            return
        if self.is_replay:
            raise UmavezError(f"{self.plan.operation} was replayed; look at .outcome instead of settling it again.")
        if self.done:
            raise UmavezError(f"This attempt at {self.plan.operation} is settled already.")
        raise ClaimLost(self.key)

    async def _losing(self) -> ClaimLost:
        self.lost = True
        self._observe("lost", self.key, self.number, 0.0, self.fence)
        await remark(self._store, self.key, LOST, self.number, self.fence, self._owner)
        return ClaimLost(self.key)

    async def _insisted(self, claim: Claim, draft: Draft, insistence: Insistence, error: UmavezError) -> Claim:
        # A doubt says no more than the lapsed lease would, and a rival's transaction may be the caller's own.
        brief = draft.status is Status.UNKNOWN or isinstance(error, OperationInProgress)
        left = 0.0 if brief else self.plan.policy.lease - (time.monotonic() - self.renewed_at)
        # What may have been written is looked at again at once; what was not may wait for the store to recover.
        at_once = (0.0,) if isinstance(error, StoreUncertain) else ()
        for pause in chain(at_once, insistence(left)):
            await asyncio.sleep(pause)
            try:
                return await drive(change(claim, draft), self._store)
            except (StoreUnavailable, OperationInProgress) as again:
                # What is away now says nothing about a write whose answer was lost before.
                error = error if isinstance(error, StoreUncertain) else again
            except StoreError as again:
                error = again
            except ClaimLost:
                raise await self._losing() from None
        if isinstance(error, OperationInProgress):
            # Said of a key this attempt holds itself, "in progress" would send the caller to wait for itself.
            raise StoreUnavailable(
                f"The record of {self.plan.operation} {self.key.value!r} is held by another transaction, and what "
                "became of this attempt could not be written; end that transaction."
            ) from error
        raise error

    def _noted(self, what: str, reason: str) -> str:
        claim = self._claim
        before = None if claim is None else claim.draft.evidence
        return noted(before, 0 if claim is None else claim.granted_at, what, "far side", reason)
