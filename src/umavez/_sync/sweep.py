# Written by tools/sync.py from src/umavez/_async/sweep.py: change that, then run `make format`.
"""Sweep: deletes what is past its time, on a schedule, by one process at a time. See `umavez.sweep`."""

from __future__ import annotations

import threading
from collections.abc import Callable

from umavez._sync.leases import Held, Leases
from umavez._sync.once import Once
from umavez.concurrency.waiting import wait
from umavez.core.sweeping import HOUR, KIND, Swept
from umavez.engine.declaration import message
from umavez.errors import ClaimLost, ConfigurationError, StoreError
from umavez.stores import Store


class Sweeper:
    """Deletes expired records in batches of `batch`, with a pause between them so that others get their turn.

    `limit` bounds one pass. `older_than`: only what expired at least so many seconds ago.
    """

    def __init__(
        self,
        once: Once,
        *,
        batch: int = 1000,
        pause: float = 0.05,
        limit: int | None = None,
        older_than: float = 0.0,
        lease: float = 60.0,
    ) -> None:
        if batch < 1 or pause < 0 or older_than < 0:
            raise ConfigurationError("A sweep needs a batch of at least 1, and no negative time.")
        self._store: Store = once.store
        self._leases = Leases(once, KIND)
        self._batch = batch
        self._pause = pause
        self._limit = limit
        self._older_than = int(older_than * 1000)
        self._lease = lease

    def run(self, stop: threading.Event | None = None, told: Callable[[int], None] | None = None) -> Swept:
        """One pass over what is due; nothing when another process is sweeping. Raises StoreError.

        `told` gets how many are gone so far, after each batch.
        """
        held = self._leases.try_acquire("sweep", lease=self._lease)
        if held is None:
            return Swept(0, 0, "another process is sweeping")
        try:
            return self._passed(held, threading.Event() if stop is None else stop, told)
        finally:
            self._given_back(held)

    def serve(self, stop: threading.Event, every: float = HOUR, told: Callable[[Swept], None] | None = None) -> None:
        """A pass every `every` seconds until `stop` is set; `told` gets each result. A failed store is tried later."""
        while not stop.is_set():
            try:
                swept = self.run(stop)
            except StoreError as error:
                swept = Swept(0, 0, message(error))
            if told is not None:
                told(swept)
            wait(stop, every)

    def _passed(self, held: Held, stop: threading.Event, told: Callable[[int], None] | None) -> Swept:
        deleted = batches = 0
        while self._limit is None or deleted < self._limit:
            size = self._batch if self._limit is None else min(self._batch, self._limit - deleted)
            gone = self._store.sweep(size, self._older_than)
            deleted, batches = deleted + gone, batches + 1
            if told is not None:
                told(deleted)
            if gone < size:
                return Swept(deleted, batches)
            wait(stop, self._pause)
            if stop.is_set():
                return Swept(deleted, batches, "asked to stop")
            try:
                held.check()
            except ClaimLost:
                return Swept(deleted, batches, "another process took over")
        return Swept(deleted, batches, "reached its limit")

    def _given_back(self, held: Held) -> None:
        try:
            self._leases.release(held)
        except (ClaimLost, StoreError):
            # It lapses by itself, and sweeping twice does no harm.
            return
