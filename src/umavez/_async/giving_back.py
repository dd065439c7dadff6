"""Giving back what was claimed for a caller that was cancelled meanwhile, and never heard of it.

Its code never began. Left to itself the claim would keep everybody out until its lease is over, and where outcomes in
doubt are held, a person would be asked about something that cannot have happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from umavez.concurrency.unbroken import AsyncAfterwards
from umavez.core.key import Key
from umavez.core.record import Draft, Record, Status
from umavez.engine.stamps import STAMPS
from umavez.errors import UmavezError
from umavez.stores import AsyncStore

LOOKS = (0.0, 0.05, 0.2, 1.0, 3.0)
"""Seconds before each look: a write may still be on its way when its caller has left. What comes later lapses."""
Giving = Callable[[Record, str], Draft]
"""What is to stand in the place of a record, under a new stamp."""


class AsyncReturns:
    """Looks for claims that nobody waits for any more, and gives them back."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._afterwards = AsyncAfterwards()

    def begin(self, key: Key, stamp: str, giving: Giving) -> None:
        """Give back the claim with this stamp, if there is one; nobody runs under it."""
        self._afterwards.begin(lambda: self._given_back(key, stamp, giving))

    async def _given_back(self, key: Key, stamp: str, giving: Giving) -> None:
        for pause in LOOKS:
            await asyncio.sleep(pause)
            try:
                record = (await self._store.read(key)).current
                if record is not None and record.stamp == stamp and record.status is Status.PENDING:
                    await self._store.swap(stamp, giving(record, STAMPS.owner()))
                    return
            except UmavezError:
                continue  # the store is away, too

    async def close(self) -> None:
        """Stop looking."""
        await self._afterwards.close()
