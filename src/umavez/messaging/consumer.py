"""Consumer: calls a handler for each delivery, at least once; with an inbox the effect is once.

A handler that fails is tried again after a growing pause, which is kept in the database and not in the broker's queue;
after the last attempt, or when it raises Poison, the delivery is put aside as dead with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from umavez.messaging.broker import (
    OUTAGE,
    USUAL,
    Backoff,
    Broker,
    BrokerUnavailable,
    Delivery,
    Poison,
    Subscription,
)
from umavez.messaging.message import Message
from umavez.messaging.stopping import paused

log = logging.getLogger("umavez.consumer")
Handler = Callable[[Message], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a consumer works. Durations are in seconds.

    parallel: how many handlers run at once. drain: how long running handlers may take after the stop. renew: how
    often the lease of what is running is extended.
    """

    parallel: int = 10
    drain: float = 30.0
    renew: float = 15.0
    wait: float = 1.0
    backoff: Backoff = USUAL
    outage: Backoff = OUTAGE


class Consumer:
    """Handles what `subscriber` gets of `topics`."""

    def __init__(
        self,
        broker: Broker,
        subscriber: str,
        topics: Sequence[str],
        handle: Handler,
        settings: ConsumerSettings | None = None,
    ) -> None:
        self._broker = broker
        self._subscriber = subscriber
        self._topics = tuple(topics)
        self._handle = handle
        self._settings = ConsumerSettings() if settings is None else settings
        self._running: dict[asyncio.Task[None], Delivery] = {}
        self._finished: list[Delivery] = []
        self._some_finished = asyncio.Event()
        self._flush_lock = asyncio.Lock()
        self.handled = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then let the running handlers end. Outages are waited out, with growing pauses."""
        failures = 0
        while not stop.is_set():
            try:
                subscription = await self._broker.subscribe(
                    self._subscriber, self._topics, prefetch=self._settings.parallel * 2
                )
                failures = 0
                try:
                    await self._consumed(subscription, stop)
                finally:
                    await subscription.close()
            except BrokerUnavailable as error:
                failures += 1
                log.warning("consumer %s waits: %s", self._subscriber, error)
                await paused(stop, self._settings.outage.pause(failures))

    async def _consumed(self, subscription: Subscription, stop: asyncio.Event) -> None:
        flusher = asyncio.create_task(self._flushing(subscription))
        renewer = asyncio.create_task(self._renewing(subscription))
        try:
            while not stop.is_set():
                await self._started(subscription, stop)
        finally:
            await self._drained()
            async with self._flush_lock:  # a flusher cut off in the middle would let deliveries come again
                flusher.cancel()
            renewer.cancel()
            await asyncio.gather(flusher, renewer, return_exceptions=True)
            await self._flushed(subscription)

    async def _started(self, subscription: Subscription, stop: asyncio.Event) -> None:
        """Take as many deliveries as there are free hands."""
        free = self._settings.parallel - len(self._running)
        if free <= 0:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            return
        deliveries = await subscription.take(free, self._settings.wait)
        if stop.is_set():
            await subscription.give_back(deliveries)
            return
        for delivery in deliveries:
            task = asyncio.create_task(self._one(subscription, delivery))
            self._running[task] = delivery
            task.add_done_callback(self._running.pop)

    async def _one(self, subscription: Subscription, delivery: Delivery) -> None:
        try:
            self._refuse_deadly(delivery)
            await self._handle(delivery.message)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is the delivery's failure, not ours
            await self._failed(subscription, delivery, error)
            return
        self.handled += 1
        self._finished.append(delivery)
        self._some_finished.set()

    def _refuse_deadly(self, delivery: Delivery) -> None:
        """Raises Poison when every allowed attempt ended without a word: the handler may be what kills the process."""
        if delivery.attempts > self._settings.backoff.limit:
            raise Poison(f"{delivery.attempts - 1} attempts ended without an answer.")

    async def _failed(self, subscription: Subscription, delivery: Delivery, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        message, backoff = delivery.message, self._settings.backoff
        log.warning("%s failed for %s at attempt %d", message.topic, message.id, delivery.attempts, exc_info=error)
        try:
            if isinstance(error, Poison) or backoff.spent(delivery.attempts):
                await subscription.bury(delivery, reason)
            else:
                await subscription.postpone(delivery, backoff.pause(delivery.attempts), reason)
        except BrokerUnavailable as lost:
            log.warning("the failure of %s could not be noted, it comes again: %s", message.id, lost)

    async def _flushing(self, subscription: Subscription) -> None:
        while True:
            await self._some_finished.wait()
            await self._flushed(subscription)

    async def _flushed(self, subscription: Subscription) -> None:
        """Everything that was finished meanwhile is marked together."""
        self._some_finished.clear()
        async with self._flush_lock:
            finished, self._finished = self._finished, []
            if not finished:
                return
            try:
                await subscription.finish(finished)
            except BrokerUnavailable as lost:
                log.warning("%d deliveries could not be marked as done, they come again: %s", len(finished), lost)

    async def _renewing(self, subscription: Subscription) -> None:
        while True:
            await asyncio.sleep(self._settings.renew)
            if self._running:
                try:
                    await subscription.renew(list(self._running.values()))
                except BrokerUnavailable as lost:
                    log.warning("leases were not renewed: %s", lost)

    async def _drained(self) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.drain)
        for task in list(self._running):
            task.cancel()
