"""Heartbeats: renew the leases of running attempts.

For threads they come from threads of their own, so that busy code cannot starve them. For tasks they come from tasks:
code that blocks the loop for longer than the lease loses its claim, and is told so when it settles.

Beats run side by side, a bounded number of them: one whose record is locked must not keep the others waiting. Whatever
a beat raises, the next one comes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from umavez.concurrency.after_fork import reset_after_fork
from umavez.concurrency.shelter import sheltered
from umavez.errors import ClaimLost, UmavezError

LOG = logging.getLogger("umavez")
BEATS = 3
"""Beats per lease: two may fail before a claim is in danger."""
SIDE_BY_SIDE = 8
"""Threads that beat at a time; each takes attempt after attempt while some are due."""
CLOSING = 5.0
"""Seconds that beats under way get to end when heartbeats are closed."""
ANNOUNCED = 30.0
"""Seconds between two announcements of a process that makes claims."""
TASKS = 256
"""Tasks that beat at a time: as many as group commit carries at once."""


class Leased(Protocol):
    """An attempt, as heartbeats see it; `renew` is awaited or not."""

    done: bool
    lost: bool
    plan: Any
    renewed_at: float


class _Renewable(Leased, Protocol):
    def renew(self) -> None: ...


class _AsyncRenewable(Leased, Protocol):
    async def renew(self) -> None: ...


class Heartbeats:
    """Renews every attempt between `add` and `discard`. Closed, they begin again with the next `add`.

    A thread looks at the attempts at the pace of the shortest lease, not when each one begins: most attempts are over
    long before their first beat, and waking a thread for each would cost more than they do.
    """

    def __init__(self, announce: Callable[[], None] | None = None) -> None:
        self._announce = announce
        self.reset()
        # In a forked child the threads do not exist, though everything here says that they do.
        reset_after_fork(self)

    def reset(self) -> None:
        """Know no attempt and no thread."""
        self.attempts: set[_Renewable] = set()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pace = 0.0
        self._due: deque[_Renewable] = deque()
        self._beating: set[_Renewable] = set()
        self._beaters = 0
        self._announced_at: float | None = None
        self._announcing: threading.Thread | None = None

    def add(self, attempt: _Renewable) -> None:
        """Renew `attempt`'s lease from now on."""
        self.attempts.add(attempt)
        pace = attempt.plan.policy.lease / BEATS
        if not 0.0 < self._pace <= pace:
            self._quicken(pace)

    def discard(self, attempt: _Renewable) -> None:
        """Stop renewing. A beat under way ends by itself; the attempt's lock orders it with settling."""
        self.attempts.discard(attempt)

    @sheltered  # a handler that raises inside would leave the condition's lock held, and every beat waiting for it
    def close(self) -> None:
        """Stop. The threads end by themselves; an announcement is waited for, as the store is closed next."""
        with self._wake:
            self._thread, self._pace = None, 0.0
            self._wake.notify_all()
            announcing, self._announcing = self._announcing, None
        if announcing is not None:
            announcing.join(CLOSING)

    @sheltered
    def _quicken(self, pace: float) -> None:
        with self._wake:
            self._pace = pace if self._pace == 0.0 else min(pace, self._pace)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="umavez-heartbeat", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def _look(self) -> None:
        while True:
            with self._wake:
                self._wake.wait(self._pace or None)
                if self._thread is not threading.current_thread():
                    return
                self._announce_if_due()
                if not self.attempts:
                    # Idle: sleep until somebody begins.
                    self._pace = 0.0
                    continue
                now = time.monotonic()
                late = [one for one in list(self.attempts) if one not in self._beating and due(one, now)]
                self._beating.update(late)
                self._due.extend(late)
                wanted = min(len(self._due), SIDE_BY_SIDE - self._beaters)
            for _ in range(wanted):
                self._begin_beating()

    def _announce_if_due(self) -> None:
        """Say that the process lives: in a thread of its own, for a store that is away must not keep beats waiting."""
        if self._announce is None or not announcing_due(self._announced_at):
            return
        self._announced_at = time.monotonic()
        announcing = threading.Thread(target=self._announce, name="umavez-announce", daemon=True)
        with suppress(RuntimeError):  # no thread to be had
            announcing.start()
            self._announcing = announcing

    def _begin_beating(self) -> None:
        with self._wake:
            self._beaters += 1
        try:
            threading.Thread(target=self._beat, name="umavez-beat", daemon=True).start()
        except RuntimeError:  # no thread to be had; what is due is beaten here, one after the other
            self._beat()

    def _beat(self) -> None:
        while True:
            with self._wake:
                if not self._due:
                    self._beaters -= 1
                    return
                attempt = self._due.popleft()
            try:
                if attempt in self.attempts and not beat(attempt):
                    self.discard(attempt)
            finally:
                self._beating.discard(attempt)


class AsyncHeartbeats:
    """Renews every attempt between `add` and `discard`, from tasks. Closed, they begin again with the next `add`."""

    def __init__(self, announce: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self._announce = announce
        self._announced_at: float | None = None
        self._announcing: asyncio.Task[None] | None = None
        self.attempts: set[_AsyncRenewable] = set()
        self._beating: dict[_AsyncRenewable, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._pace = 0.0

    def add(self, attempt: _AsyncRenewable) -> None:
        """Renew `attempt`'s lease from now on."""
        pace = attempt.plan.policy.lease / BEATS
        if self._pace == 0.0 or pace < self._pace or self._stopped():
            self._quicken(pace)
        self.attempts.add(attempt)

    def discard(self, attempt: _AsyncRenewable) -> None:
        """Stop renewing."""
        self.attempts.discard(attempt)

    def _stopped(self) -> bool:
        # Written out: asked at every call. Another loop: the engine outlived an asyncio.run().
        return self._task is None or self._task.done() or self._task.get_loop() is not asyncio.get_running_loop()

    def _abandoned(self) -> bool:
        return self._task is not None and self._task.get_loop() is not asyncio.get_running_loop()

    def _quicken(self, pace: float) -> None:
        if self._abandoned():
            # Whoever ran in the other loop runs no more.
            self.attempts.clear()
            self._beating.clear()
        elif self._task is not None:
            self._task.cancel()
        self._pace = pace
        self._task = asyncio.get_running_loop().create_task(self._look(), name="umavez-heartbeat")

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._pace)
            if self._announce is not None and announcing_due(self._announced_at):
                self._announced_at = time.monotonic()
                self._announcing = asyncio.get_running_loop().create_task(self._announce(), name="umavez-announce")
            if not self.attempts:
                self._pace = 0.0
                return
            now = time.monotonic()
            for attempt in list(self.attempts):
                if len(self._beating) < TASKS and attempt not in self._beating and due(attempt, now):
                    task = asyncio.get_running_loop().create_task(self._beat(attempt), name="umavez-beat")
                    self._beating[attempt] = task

    async def _beat(self, attempt: _AsyncRenewable) -> None:
        try:
            if attempt in self.attempts and not await async_beat(attempt):
                self.discard(attempt)
        finally:
            self._beating.pop(attempt, None)

    async def close(self) -> None:
        """Stop."""
        if self._task is None or self._abandoned():
            return
        tasks = [self._task, *self._beating.values(), *([self._announcing] if self._announcing else [])]
        for task in tasks:
            task.cancel()
        # A beat that does not let itself be ended is left behind: whoever closes has other things to close.
        await asyncio.wait(tasks, timeout=CLOSING)


def beat(attempt: _Renewable) -> bool:
    """Renew once; whether there is anything left to renew."""
    try:
        attempt.renew()
    except Exception as error:  # noqa: BLE001  # whatever it was, other attempts need their beats
        return _survives(error)
    return True


async def async_beat(attempt: _AsyncRenewable) -> bool:
    """As `beat`, for tasks."""
    try:
        await attempt.renew()
    except Exception as error:  # noqa: BLE001  # as in beat
        return _survives(error)
    return True


def _survives(error: Exception) -> bool:
    if isinstance(error, ClaimLost):
        return False
    if not isinstance(error, UmavezError):
        LOG.error("A heartbeat failed; it is tried again.", exc_info=error)
    return True


def announcing_due(announced_at: float | None) -> bool:
    """Whether a process that claims should be announced at this look."""
    return announced_at is None or time.monotonic() - announced_at >= ANNOUNCED


def due(attempt: Leased, now: float) -> bool:
    """Whether an attempt's lease should be renewed at this look; half a beat early rather than a beat late."""
    return not attempt.done and now - attempt.renewed_at >= attempt.plan.policy.lease / BEATS / 2
