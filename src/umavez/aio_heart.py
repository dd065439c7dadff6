"""AsyncHeart: renews the leases of running attempts from its own task; see `heart.py` for the reasons.

A task shares its loop with the code it guards: code that blocks the loop for longer than the lease
loses its claim, and is told so when it settles.
"""

from __future__ import annotations

import asyncio
import time

from umavez.aio_attempt import AsyncAttempt
from umavez.errors import ClaimLost, UmavezError

BEATS = 3


class AsyncHeart:
    """Beats for every attempt between `begin` and `end`."""

    def __init__(self) -> None:
        self._attempts: set[AsyncAttempt] = set()
        self._task: asyncio.Task[None] | None = None
        self._pace = 0.0

    def begin(self, attempt: AsyncAttempt) -> None:
        """Renew `attempt`'s lease from now on."""
        self._attempts.add(attempt)
        pace = attempt.plan.policy.lease / BEATS
        if self._pace == 0.0 or pace < self._pace or self._stopped():
            self._quicken(pace)

    def end(self, attempt: AsyncAttempt) -> None:
        """Stop renewing."""
        self._attempts.discard(attempt)

    def _stopped(self) -> bool:
        # Another loop than the task's: the engine outlived an asyncio.run().
        return self._task is None or self._task.done() or self._task.get_loop() is not asyncio.get_running_loop()

    def _quicken(self, pace: float) -> None:
        if self._task is not None and not self._stopped():
            self._task.cancel()
        self._pace = pace
        self._task = asyncio.get_running_loop().create_task(self._run(), name="umavez-heart")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pace)
            if not self._attempts:
                self._pace = 0.0
                return
            for attempt in list(self._attempts):
                if not attempt.done and time.monotonic() - attempt.beaten_at >= attempt.plan.policy.lease / BEATS / 2:
                    await self._beat(attempt)

    async def _beat(self, attempt: AsyncAttempt) -> None:
        try:
            await attempt.renew()
        except ClaimLost:
            self.end(attempt)
        except UmavezError:
            if time.monotonic() - attempt.beaten_at >= attempt.plan.policy.lease:
                attempt.lost = True

    async def close(self) -> None:
        """Stop beating."""
        if self._task is not None and not self._stopped():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
