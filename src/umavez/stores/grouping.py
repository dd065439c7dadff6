"""Group commit: concurrent callers in one process share a round trip and a commit.

A lone caller is sent at once, on its own, by itself. While every lane (a connection) is busy, callers
queue; whoever comes first in the queue takes all of it along on the next free lane. So batches grow
exactly as far as the store is slower than the callers, and nobody waits for a timer.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from asyncio import get_running_loop
from collections.abc import Sequence
from typing import Protocol, TypeVar

from umavez.core.flow import Stale, Swap, Swapped
from umavez.errors import StoreError, StoreUncertain, UmavezError

Reply = Swapped | Stale
Answer = Reply | UmavezError
Q = TypeVar("Q")
INTERRUPTED = "The batch that carried this write was interrupted; ask again to learn whether it stands."
MOST = 256
"""Largest batch: beyond it a statement's own work outweighs the shared commit."""


class Lane(Protocol):
    """One connection that carries swaps. It repairs itself: a failed connection is replaced at the next send."""

    def send(self, batch: Sequence[Swap]) -> Sequence[Reply]:
        """Carry out swaps of different keys, in one commit; all or none. Raises StoreError."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class AsyncLane(Protocol):
    """A Lane that is awaited. A cancelled send drops its connection."""

    async def send(self, batch: Sequence[Swap]) -> Sequence[Reply]:
        """See Lane.send."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class _Ticket:
    """A caller in the queue: sleeps until it has an answer, or leads the next batch."""

    __slots__ = ("answer", "awake", "lead", "swap")

    def __init__(self, swap: Swap) -> None:
        self.swap = swap
        self.answer: Answer | None = None
        self.lead: tuple[Lane, list[_Ticket]] | None = None
        self.awake = threading.Lock()
        self.awake.acquire()


class ThreadGroup:
    """Lanes shared by threads."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = list(lanes)
        self.start_anew()
        _GROUPS.add(self)

    def start_anew(self) -> None:
        """Every lane is idle and nobody waits."""
        self._idle = list(self._lanes)
        self._queue: list[_Ticket] = []
        self._lock = threading.Lock()

    def swap(self, swap: Swap) -> Reply:
        """Carry out one swap, alone or with others. Raises StoreError."""
        with self._lock:
            turn = self._turn(swap)
        if isinstance(turn, _Ticket):
            return self._queued(turn)
        try:
            return turn.send((swap,))[0]
        finally:
            self._pass_on(turn)

    def _turn(self, swap: Swap) -> Lane | _Ticket:
        """A free lane, or a place in the queue."""
        if self._idle:
            return self._idle.pop()
        ticket = _Ticket(swap)
        self._queue.append(ticket)
        return ticket

    def _queued(self, ticket: _Ticket) -> Reply:
        try:
            ticket.awake.acquire()
        except BaseException:  # KeyboardInterrupt in the main thread: others may be counting on this ticket to lead
            self._abandon(ticket)
            raise
        if ticket.lead is not None:
            self._lead(*ticket.lead)
        return _result(ticket.answer)

    def _abandon(self, ticket: _Ticket) -> None:
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)
                return
        if ticket.lead is not None:
            self._lead(*ticket.lead)

    def _lead(self, lane: Lane, batch: list[_Ticket]) -> None:
        # What followers hear if the leader is interrupted midway; they must not sleep for ever.
        answers: list[Answer] = [StoreUncertain(INTERRUPTED) for _ in batch]
        try:
            answers = _sent(lane, [ticket.swap for ticket in batch])
        finally:
            for ticket, answer in zip(batch, answers, strict=True):
                ticket.answer = answer
            for follower in batch[1:]:
                follower.awake.release()
            self._pass_on(lane)

    def _pass_on(self, lane: Lane) -> None:
        """Hand the lane to the head of the queue, with its batch; or leave it idle."""
        with self._lock:
            if not self._queue:
                self._idle.append(lane)
                return
            digests = [ticket.swap.draft.key.digest for ticket in self._queue]
            batch, self._queue = _batch_of(self._queue, digests, MOST)
            batch[0].lead = (lane, batch)
        batch[0].awake.release()

    def close(self) -> None:
        """Close every lane."""
        for lane in self._lanes:
            lane.close()


_GROUPS: weakref.WeakSet[ThreadGroup] = weakref.WeakSet()


def _start_all_anew() -> None:
    for group in _GROUPS:
        group.start_anew()


# In a forked child the threads that held the lock or a lane are gone, and would never give them back.
os.register_at_fork(after_in_child=_start_all_anew)


_Waiter = tuple[Swap, "asyncio.Future[Reply]"]
"""A task in the queue: what it asks, and where it waits for the answer."""


class TaskGroup:
    """Lanes shared by the tasks of one event loop."""

    def __init__(self, lanes: Sequence[AsyncLane]) -> None:
        self._lanes = list(lanes)
        self._idle = list(lanes)
        self._queue: list[_Waiter] = []
        self._under_way = 0
        """How many of the queue's swaps are on lanes now."""
        self._callers = 0
        """How many asked for something when the last batch was taken."""
        # Strong references: the loop itself keeps only weak ones, and a batch must not vanish midway.
        self._running: set[asyncio.Task[None]] = set()

    async def swap(self, swap: Swap) -> Reply:
        """Carry out one swap, alone or with others. Raises StoreError."""
        if self._idle:
            lane = self._idle.pop()
            try:
                return (await lane.send((swap,)))[0]
            finally:
                self._pass_on(lane)
        answer: asyncio.Future[Reply] = get_running_loop().create_future()
        self._queue.append((swap, answer))
        return await answer

    def _pass_on(self, lane: AsyncLane) -> None:
        """Let the lane carry those who wait; or leave it idle."""
        if not self._queue:
            self._idle.append(lane)
            return
        task = get_running_loop().create_task(self._lead(lane))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _lead(self, lane: AsyncLane) -> None:
        """Carry batch after batch until nobody waits."""
        try:
            while self._queue:
                await self._carry(lane, self._share())
                # One turn of the loop, no timer: whoever was just answered may ask again, and then rides along.
                # Sent at once, batches would be half as large and cost both sides more for each swap.
                await asyncio.sleep(0)
        finally:
            self._pass_on(lane)

    def _share(self) -> list[_Waiter]:
        """The next batch: as many as each lane carries when all are equally full.

        A lane that took everybody would leave the others idle while it is under way, and the store with them
        while the answers are read.
        """
        callers = len(self._queue) + self._under_way
        # Who was answered a moment ago and is about to ask again is in neither number, but was in the last one.
        most = min(MOST, -(-max(callers, self._callers) // len(self._lanes)))
        self._callers = callers
        digests = [swap.draft.key.digest for swap, _ in self._queue]
        batch, self._queue = _batch_of(self._queue, digests, most)
        if self._queue and self._idle:
            self._pass_on(self._idle.pop())
        return batch

    async def _carry(self, lane: AsyncLane, batch: list[_Waiter]) -> None:
        self._under_way += len(batch)
        try:
            answers = await _asent(lane, [swap for swap, _ in batch])
        except BaseException:
            _tell(batch, [StoreUncertain(INTERRUPTED) for _ in batch])
            raise
        finally:
            self._under_way -= len(batch)
        _tell(batch, answers)

    async def close(self) -> None:
        """Wait for what is under way, then close every lane."""
        if self._running:
            await asyncio.wait(self._running)
        for lane in self._lanes:
            await lane.close()


def _tell(batch: Sequence[_Waiter], answers: Sequence[Answer]) -> None:
    for (_, future), answer in zip(batch, answers, strict=True):
        if future.done():  # its task was cancelled
            continue
        if isinstance(answer, UmavezError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _sent(lane: Lane, swaps: list[Swap]) -> list[Answer]:
    """The answers to a batch. A batch that fails is sent again one by one: one bad swap must not fail its
    neighbours, and a swap that was done already is recognised by its stamp."""
    try:
        return list(lane.send(swaps))
    except StoreError as error:
        resent = _Resent(error)
        for swap in swaps:
            resent.add(resent.given_up() or _alone(lane, swap))
        return resent.answers


def _alone(lane: Lane, swap: Swap) -> Answer:
    try:
        return lane.send((swap,))[0]
    except UmavezError as error:
        return error


async def _asent(lane: AsyncLane, swaps: list[Swap]) -> list[Answer]:
    """See `_sent`."""
    try:
        return list(await lane.send(swaps))
    except StoreError as error:
        resent = _Resent(error)
        for swap in swaps:
            resent.add(resent.given_up() or await _aalone(lane, swap))
        return resent.answers


async def _aalone(lane: AsyncLane, swap: Swap) -> Answer:
    try:
        return (await lane.send((swap,)))[0]
    except UmavezError as error:
        return error


class _Resent:
    """The answers to the swaps of a failed batch, sent one by one."""

    def __init__(self, first: StoreError) -> None:
        self._first = first
        self._failures = 0
        self.answers: list[Answer] = []

    def add(self, answer: Answer) -> None:
        """Keep an answer. Where the batch may have been done, a failed resend must not say that nothing was written."""
        failed = isinstance(answer, StoreError)
        self._failures = self._failures + 1 if failed else 0
        self.answers.append(self._first if failed and self._first.may_have_happened else answer)

    def given_up(self) -> StoreError | None:
        """The batch's error once two in a row have failed: the store is away, and each would wait for it in turn."""
        return self._first if self._failures >= 2 else None


def _batch_of(queue: list[Q], digests: Sequence[bytes], most: int) -> tuple[list[Q], list[Q]]:
    """The next batch and what is left: at most `most`, and no key twice, so that each swap sees the one before it.

    `digests` are those of the queue's keys.
    """
    if len(queue) <= most and len(set(digests)) == len(queue):
        return queue, []
    batch: dict[bytes, Q] = {}
    left: list[Q] = []
    for entry, digest in zip(queue, digests, strict=True):
        if digest in batch or len(batch) >= most:
            left.append(entry)
        else:
            batch[digest] = entry
    return list(batch.values()), left


def _result(answer: Answer | None) -> Reply:
    if answer is None or isinstance(answer, UmavezError):
        raise answer or StoreUncertain(INTERRUPTED)
    return answer
