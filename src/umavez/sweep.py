"""Sweep: deletes what is past its time, on a schedule, by one process at a time. `aio_sweep.py` is its twin for tasks.

Sweeper(once).run()               # one pass
Sweeper(once).serve(stop)         # a pass an hour, until `stop` is set

Nothing here decides what may go: a record carries its own end, set when it was settled (`keep=`, 24 hours unless
said otherwise, as seed 003 has it; say keep=KEEP_30_DAYS where clients may come back for a month, as in seed 000).
What runs or is unknown has no end and stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from umavez.errors import ClaimLost, ConfigurationError, StoreError
from umavez.leases import Held, Leases
from umavez.once import Once
from umavez.plan import message
from umavez.stores import Store

KEEP_24_HOURS = 24 * 3600.0
KEEP_30_DAYS = 30 * 24 * 3600.0
HOUR = 3600.0
KIND = "umavez"
"""The scope of the sweepers' lease: one for the whole store, whatever the engines' scopes are."""


class Swept(NamedTuple):
    """What one pass did: how many it deleted, in how many batches, and why it stopped early if it did."""

    deleted: int
    batches: int
    stopped: str = ""


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

    def run(self, stop: threading.Event | None = None) -> Swept:
        """One pass over what is due; nothing when another process is sweeping. Raises StoreError."""
        held = self._leases.try_acquire("sweep", lease=self._lease)
        if held is None:
            return Swept(0, 0, "another process is sweeping")
        try:
            return self._passed(held, threading.Event() if stop is None else stop)
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
            _wait(stop, every)

    def _passed(self, held: Held, stop: threading.Event) -> Swept:
        deleted = batches = 0
        while self._limit is None or deleted < self._limit:
            size = self._batch if self._limit is None else min(self._batch, self._limit - deleted)
            gone = self._store.sweep(size, self._older_than)
            deleted, batches = deleted + gone, batches + 1
            if gone < size:
                return Swept(deleted, batches)
            _wait(stop, self._pause)
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


def _wait(stop: threading.Event, seconds: float) -> None:
    stop.wait(seconds)
