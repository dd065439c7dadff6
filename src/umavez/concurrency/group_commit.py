"""Group commit: concurrent callers in one process share a round trip and a commit.

A lone caller is sent at once, on its own, by itself. While every lane (a connection) is busy, callers
queue; whoever comes first in the queue takes all of it along on the next free lane. So batches grow
exactly as far as the store is slower than the callers, and nobody waits for a timer.

Company must not hurt. A batch that fails, whatever the error, is sent again one by one, so that a bad swap fails alone.
A key that somebody's open transaction holds makes whoever is sent with it wait for the lock in vain: for a while it is
sent alone, and never on every lane at once.
"""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import get_running_loop
from collections.abc import Coroutine, Sequence
from typing import Any

from umavez.concurrency.after_fork import reset_after_fork
from umavez.concurrency.batching import INTERRUPTED, Answer, Reply, Shunned, in_vain, next_of
from umavez.concurrency.lanes import AsyncLane, Lane, async_sent, sent
from umavez.concurrency.waiting import refuse_rival
from umavez.core.flow import Swap
from umavez.errors import StoreUnavailable, StoreUncertain

TOO_LONG = "Every connection was busy with earlier writes for too long; this one was not sent, try again."
MOST = 256
"""Largest batch: beyond it a statement's own work outweighs the shared commit."""


class _Ticket:
    """A caller in the queue: sleeps until it has an answer, or leads the next batch."""

    __slots__ = ("answer", "awake", "lead", "swap")

    def __init__(self, swap: Swap) -> None:
        self.swap = swap
        self.answer: Answer | None = None
        self.lead: tuple[Lane, list[_Ticket]] | None = None
        self.awake = threading.Lock()
        self.awake.acquire()


class GroupCommit:
    """Lanes shared by threads. Nobody waits for one for more than `patience` seconds."""

    def __init__(self, lanes: Sequence[Lane], patience: float = 30.0) -> None:
        self._lanes = list(lanes)
        self._patience = patience
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Every lane is idle and nobody waits."""
        self._idle = list(self._lanes)
        self._queue: list[_Ticket] = []
        self._leaving: set[Lane] = set()
        """Lanes that shall be closed by whoever is using them."""
        self._lock = threading.Lock()
        self._shunned = Shunned(len(self._lanes))

    def swap(self, swap: Swap) -> Reply:
        """Carry out one swap, alone or with others. Raises StoreError."""
        shunned = self._shunned
        with self._lock:
            idle = self._idle
            free = idle and (not shunned.keys or shunned.admits(swap.draft.key.digest, idle[-1]))
            turn = idle.pop() if free else self._in_line(swap)
        if isinstance(turn, _Ticket):
            return self._queued(turn)
        try:
            return turn.send((swap,))[0]
        except Exception as error:
            shunned.note(swap, error)
            self._turn_away(error)
            raise
        finally:
            self._pass_on(turn)

    def _in_line(self, swap: Swap) -> _Ticket:
        ticket = _Ticket(swap)
        self._queue.append(ticket)
        return ticket

    def _queued(self, ticket: _Ticket) -> Reply:
        try:
            if not ticket.awake.acquire(timeout=self._patience):
                self._withdraw(ticket)
        except BaseException:  # KeyboardInterrupt in the main thread: others may be counting on this ticket to lead
            self._abandon(ticket)
            raise
        if ticket.lead is not None:
            self._lead(*ticket.lead)
        return _result(ticket.answer)

    def _withdraw(self, ticket: _Ticket) -> None:
        """Leave the queue, unsent. Who is not in it any more is under way, and its lane ends in time."""
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)
                ticket.answer = StoreUnavailable(TOO_LONG, waited=True)
                return
        ticket.awake.acquire()

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
            answers = sent(lane, [ticket.swap for ticket in batch], self._shunned)
        finally:
            for ticket, answer in zip(batch, answers, strict=True):
                ticket.answer = answer
            for follower in batch[1:]:
                follower.awake.release()
            self._turn_away(answers[-1])
            self._pass_on(lane)

    def _turn_away(self, answer: Answer) -> None:
        """After a whole time-out in vain, tell those in line: each would wait as long for the same store."""
        if not in_vain(answer):
            return
        with self._lock:
            queue, self._queue = self._queue, []
        for ticket in queue:
            ticket.answer = StoreUnavailable(TOO_LONG, waited=True)
            ticket.awake.release()

    def _pass_on(self, lane: Lane) -> None:
        """Hand the lane to the head of the queue, with its batch; or leave it idle."""
        if self._leaving and lane in self._leaving:
            self._leaving.discard(lane)
            lane.close()
        with self._lock:
            if self._shunned.lanes:
                self._shunned.leave(lane)
            if not self._queue:
                self._idle.append(lane)
                return
            digests = [ticket.swap.draft.key.digest for ticket in self._queue]
            batch, self._queue = next_of(self._queue, digests, MOST, self._shunned, lane)
            if not batch:
                self._idle.append(lane)
                return
            batch[0].lead = (lane, batch)
        batch[0].awake.release()

    def close(self) -> None:
        """Close every lane: an idle one now, a busy one when its batch is answered. A later swap opens it again."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._leaving.update(lane for lane in self._lanes if lane not in idle)
        for lane in idle:
            try:
                lane.close()
            finally:
                self._pass_on(lane)


_Waiter = tuple[Swap, "asyncio.Future[Reply]", float]
"""A task in the queue: what it asks, where it waits for the answer, and since when by the loop's clock."""


class AsyncGroupCommit:
    """Lanes shared by the tasks of one event loop at a time. Nobody waits for one for more than `patience` seconds.

    A loop may end in the middle of a call, as asyncio.run() with a time-out around it does, and another begin: whoever
    waited in the first waits no more, and what its lanes were doing is over.
    """

    def __init__(self, lanes: Sequence[AsyncLane], patience: float = 30.0) -> None:
        self._lanes = list(lanes)
        self._patience = patience
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._begin()

    def _begin(self) -> None:
        self._leaving: set[AsyncLane] = set()
        """Lanes that shall be closed by whoever is using them."""
        self._watch: asyncio.TimerHandle | None = None
        self._idle = list(self._lanes)
        self._queue: list[_Waiter] = []
        self._under_way = 0
        """How many of the queue's swaps are on lanes now."""
        self._callers = 0
        """How many asked for something when the last batch was taken."""
        # Strong references: the loop itself keeps only weak ones, and a batch must not vanish midway.
        self._running: set[asyncio.Task[None]] = set()
        self._shunned = Shunned(len(self._lanes))

    async def swap(self, swap: Swap) -> Reply:
        """Carry out one swap, alone or with others. Raises StoreError."""
        loop = get_running_loop()
        if loop is not self._loop:
            self._move()
        idle, shunned = self._idle, self._shunned
        if idle and (not shunned.keys or shunned.admits(swap.draft.key.digest, idle[-1])):
            lane = idle.pop()
            try:
                return (await lane.send((swap,)))[0]
            except Exception as error:
                shunned.note(swap, error)
                self._turn_away(error)
                raise
            finally:
                self._pass_on(lane)
        answer: asyncio.Future[Reply] = loop.create_future()
        self._queue.append((swap, answer, loop.time()))
        # One timer for all: one for each would cost more than queueing itself.
        if self._watch is None:
            self._watch = loop.call_later(self._patience, self._look_after)
        return await answer

    def _look_after(self) -> None:
        """Tell those who have waited for too long; their swaps were not sent."""
        loop, self._watch = get_running_loop(), None
        edge = loop.time() - self._patience
        late = [waiter for waiter in self._queue if waiter[2] <= edge]
        self._queue = [waiter for waiter in self._queue if waiter[2] > edge]
        _tell_unsent(late)
        if self._queue:
            left = min(waiter[2] for waiter in self._queue) - edge
            self._watch = loop.call_later(left, self._look_after)

    def _move(self) -> None:
        """Begin anew in the loop that runs now. Raises StoreUnavailable while the one before it is amid a call."""
        if self._queue or self._running or len(self._idle) < len(self._lanes):
            refuse_rival(self._loop, self._pid)
        if self._loop is not None:
            for lane in self._lanes:
                if lane not in self._idle:
                    lane.forget()
        self._loop, self._pid = get_running_loop(), os.getpid()
        self._begin()

    def _pass_on(self, lane: AsyncLane) -> None:
        """Let the lane carry those who wait; or leave it idle."""
        if self._shunned.lanes:
            self._shunned.leave(lane)
        if self._leaving and lane in self._leaving:
            self._leaving.discard(lane)
            self._keep(self._leave(lane))
        elif self._queue and self._may_go():
            self._keep(self._lead(lane))
        else:
            self._idle.append(lane)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _leave(self, lane: AsyncLane) -> None:
        try:
            await lane.close()
        finally:
            self._pass_on(lane)

    async def _lead(self, lane: AsyncLane) -> None:
        """Carry batch after batch until nobody waits."""
        try:
            while batch := self._share(lane):
                await self._carry(lane, batch)
                self._shunned.leave(lane)
                # One turn of the loop, no timer: whoever was just answered may ask again, and then rides along.
                # Sent at once, batches would be half as large and cost both sides more for each swap.
                await asyncio.sleep(0)
        finally:
            self._pass_on(lane)

    def _may_go(self) -> bool:
        """Whether somebody waits who need not wait for a lock's sake."""
        if not self._shunned.keys:
            return True
        return not self._shunned.full() or any(swap.draft.key.digest not in self._shunned for swap, _, _ in self._queue)

    def _share(self, lane: AsyncLane) -> list[_Waiter]:
        """The next batch: as many as each lane carries when all are equally full.

        A lane that took everybody would leave the others idle while it is under way, and the store with them
        while the answers are read.
        """
        callers = len(self._queue) + self._under_way
        # Callers just answered will queue again in a moment. Count them too, or batches come out half as large.
        most = min(MOST, -(-max(callers, self._callers) // len(self._lanes)))
        self._callers = callers
        digests = [swap.draft.key.digest for swap, _, _ in self._queue]
        batch, self._queue = next_of(self._queue, digests, most, self._shunned, lane)
        if self._queue and self._idle:
            self._pass_on(self._idle.pop())
        return batch

    async def _carry(self, lane: AsyncLane, batch: list[_Waiter]) -> None:
        self._under_way += len(batch)
        try:
            answers = await async_sent(lane, [swap for swap, _, _ in batch], self._shunned)
        except BaseException:
            _tell(batch, [StoreUncertain(INTERRUPTED) for _ in batch])
            raise
        finally:
            self._under_way -= len(batch)
        _tell(batch, answers)
        self._turn_away(answers[-1])

    def _turn_away(self, answer: Answer) -> None:
        """See GroupCommit."""
        if in_vain(answer):
            queue, self._queue = self._queue, []
            _tell_unsent(queue)

    async def close(self) -> None:
        """Close every lane: an idle one now, a busy one when its batch is answered, which is waited for."""
        if get_running_loop() is not self._loop:
            self._move()
        idle, self._idle = self._idle, []
        self._leaving.update(lane for lane in self._lanes if lane not in idle)
        for lane in idle:
            await self._leave(lane)
        if self._running:
            await asyncio.wait(self._running)


def _tell_unsent(batch: Sequence[_Waiter]) -> None:
    _tell(batch, [StoreUnavailable(TOO_LONG, waited=True) for _ in batch])


def _tell(batch: Sequence[_Waiter], answers: Sequence[Answer]) -> None:
    for (_, future, _), answer in zip(batch, answers, strict=True):
        if future.done():  # its task was cancelled
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _result(answer: Answer | None) -> Reply:
    if answer is None or isinstance(answer, Exception):
        raise answer or StoreUncertain(INTERRUPTED)
    return answer
