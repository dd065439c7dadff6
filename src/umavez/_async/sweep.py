"""Sweep: deletes what is past its time, on a schedule, by one process at a time. See `umavez.sweep`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from umavez._async.leases import AsyncHeld, AsyncLeases
from umavez._async.once import AsyncOnce
from umavez.concurrency.waiting import async_wait
from umavez.core.sweeping import HOUR, KIND, Swept
from umavez.engine.declaration import message
from umavez.errors import ClaimLost, ConfigurationError, StoreError
from umavez.stores import AsyncStore


class AsyncSweeper:
    """Deletes expired records in batches of `batch`, with a pause between them so that others get their turn.

    `limit` bounds one pass. `older_than`: only what expired at least so many seconds ago.
    """

    def __init__(
        self,
        once: AsyncOnce,
        *,
        batch: int = 1000,
        pause: float = 0.05,
        limit: int | None = None,
        older_than: float = 0.0,
        lease: float = 60.0,
    ) -> None:
        if batch < 1 or pause < 0 or older_than < 0:
            raise ConfigurationError("A sweep needs a batch of at least 1, and no negative time.")
        self._store: AsyncStore = once.store
        self._leases = AsyncLeases(once, KIND)
        self._batch = batch
        self._pause = pause
        self._limit = limit
        self._older_than = int(older_than * 1000)
        self._lease = lease

    async def run(self, stop: asyncio.Event | None = None, told: Callable[[int], None] | None = None) -> Swept:
        """One pass over what is due; nothing when another process is sweeping. Raises StoreError.

        `told` gets how many are gone so far, after each batch.
        """
        held = await self._leases.try_acquire("sweep", lease=self._lease)
        if held is None:
            return Swept(0, 0, "another process is sweeping")
        try:
            return await self._passed(held, asyncio.Event() if stop is None else stop, told)
        finally:
            await self._given_back(held)

    async def serve(
        self, stop: asyncio.Event, every: float = HOUR, told: Callable[[Swept], None] | None = None
    ) -> None:
        """A pass every `every` seconds until `stop` is set; `told` gets each result. A failed store is tried later."""
        while not stop.is_set():
            try:
                swept = await self.run(stop)
            except StoreError as error:
                swept = Swept(0, 0, message(error))
            if told is not None:
                told(swept)
            await async_wait(stop, every)

    async def _passed(self, held: AsyncHeld, stop: asyncio.Event, told: Callable[[int], None] | None) -> Swept:
        deleted = batches = 0
        while self._limit is None or deleted < self._limit:
            size = self._batch if self._limit is None else min(self._batch, self._limit - deleted)
            gone = await self._store.sweep(size, self._older_than)
            deleted, batches = deleted + gone, batches + 1
            if told is not None:
                told(deleted)
            if gone < size:
                return Swept(deleted, batches)
            await async_wait(stop, self._pause)
            if stop.is_set():
                return Swept(deleted, batches, "asked to stop")
            try:
                await held.check()
            except ClaimLost:
                return Swept(deleted, batches, "another process took over")
        return Swept(deleted, batches, "reached its limit")

    async def _given_back(self, held: AsyncHeld) -> None:
        try:
            await self._leases.release(held)
        except (ClaimLost, StoreError):
            # It lapses by itself, and sweeping twice does no harm.
            return
