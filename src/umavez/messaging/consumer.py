"""Consumer: calls a handler for each delivery, at least once; with an inbox the effect is once.

A handler that fails is tried again after a growing pause, which is kept in the database and not in the broker's queue;
after the last attempt, or when it raises Poison, the delivery is put aside as dead with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from umavez.core.encoding.texts import legible
from umavez.messaging.broker import (
    OUTAGE,
    USUAL,
    Backoff,
    Broker,
    BrokerUnavailable,
    DatabaseAway,
    Delivery,
    Poison,
    Subscription,
)
from umavez.messaging.excuses import Excuses
from umavez.messaging.message import Message
from umavez.messaging.observing import MessageObserver, MessageObservers, fields
from umavez.messaging.stopping import paused

log = logging.getLogger("umavez.consumer")
FAREWELL = 2.0
"""Seconds that a handler which was cut off may take to clean up."""
Handler = Callable[[Message], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a consumer works. Durations are in seconds.

    parallel: how many handlers run at once; those of one aggregate run one after the other. timeout: how long a handler
    may take before it is cancelled and counts as failed; None lets it run. drain: how long running handlers may take
    after the stop. renew: how often the lease of what is running is extended.
    """

    parallel: int = 10
    timeout: float | None = 300.0
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
        *,
        observers: Iterable[MessageObserver] = (),
    ) -> None:
        self._observers = MessageObservers(observers)
        self._broker = broker
        self._subscriber = subscriber
        self._topics = tuple(topics)
        self._handle = handle
        self._settings = ConsumerSettings() if settings is None else settings
        self._running: dict[asyncio.Task[None], deque[Delivery]] = {}
        self._cutting = False
        self._excuses = Excuses()
        self._finished: list[Delivery] = []
        self._some_finished = asyncio.Event()
        self._flush_lock = asyncio.Lock()
        self._away = 0
        """How often in a row the database was not there to be asked for deliveries."""
        self.handled = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then let the running handlers end. Outages are waited out, with growing pauses."""
        # They belong to one loop, and this may be another than that of an earlier run.
        self._some_finished, self._flush_lock = asyncio.Event(), asyncio.Lock()
        self._running, self._finished = {}, []
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
                told = fields("consumer_waits", error, subscriber=self._subscriber, failures=failures)
                log.warning("consumer %s waits: %s", self._subscriber, error, extra=told)
                await paused(stop, self._settings.outage.pause(failures))

    async def _consumed(self, subscription: Subscription, stop: asyncio.Event) -> None:
        flusher = asyncio.create_task(self._flushing(subscription))
        renewer = asyncio.create_task(self._renewing(subscription))
        try:
            while not stop.is_set():
                await self._started(subscription, stop)
        finally:
            await self._drained(subscription)
            async with self._flush_lock:  # a flusher cut off in the middle would let deliveries come again
                flusher.cancel()
            renewer.cancel()
            await asyncio.gather(flusher, renewer, return_exceptions=True)
            await self._flushed(subscription)
            self._finished.clear()  # what is not marked by now comes again; the next subscription has other tags

    async def _started(self, subscription: Subscription, stop: asyncio.Event) -> None:
        """Take as many deliveries as there are free hands."""
        free = self._settings.parallel - sum(map(len, self._running.values()))
        if free <= 0:
            await self._some_free(stop)
            return
        try:
            deliveries = await subscription.take(free, self._settings.wait)
        except DatabaseAway as away:
            self._away += 1
            told = fields("consumer_waits", away, subscriber=self._subscriber, failures=self._away)
            log.warning("consumer %s waits for the database: %s", self._subscriber, away, extra=told)
            await paused(stop, self._settings.outage.pause(self._away))
            return
        self._away = 0
        if stop.is_set():
            await subscription.give_back(deliveries)
            return
        for delivery in deliveries:
            self._begin(subscription, delivery)

    async def _some_free(self, stop: asyncio.Event) -> None:
        """Wait for a free hand, or for the stop: handlers that hang must not keep it waiting."""
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({*self._running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()

    def _begin(self, subscription: Subscription, delivery: Delivery) -> None:
        """Handle a delivery now, or after those of its aggregate that are in hand."""
        aggregate = delivery.message.aggregate
        for line in self._running.values():
            if aggregate is not None and line and line[0].message.aggregate == aggregate:
                line.append(delivery)
                return
        line = deque([delivery])
        task = asyncio.create_task(self._in_line(subscription, line))
        self._running[task] = line
        task.add_done_callback(self._running.pop)

    async def _in_line(self, subscription: Subscription, line: deque[Delivery]) -> None:
        """Handle the deliveries of one aggregate in their order; behind one that failed the others wait with it."""
        while line:
            handled = await self._one(subscription, line[0])
            while not handled and len(line) > 1:
                # The failed one stays at the head meanwhile, so that what comes now waits behind it too.
                waiting = list(line)[1:]
                await self._given_back(subscription, waiting)
                for _ in waiting:
                    del line[1]
            line.popleft()

    async def _one(self, subscription: Subscription, delivery: Delivery) -> bool:
        tokens: list[Any] = []
        if self._observers:
            tokens = self._observers.received(self._subscriber, delivery.message, delivery.attempts)
        try:
            self._refuse_deadly(delivery)
            async with asyncio.timeout(self._settings.timeout):
                await self._handle(delivery.message)
        except asyncio.CancelledError as error:
            if self._cutting:
                self._observers.handled(tokens, "failed", error)
                raise
            # It leaked out of the handler: nobody here has cancelled it, so it is a failure like any other.
            _forget_cancelling()
            await self._failed(subscription, delivery, error, tokens)
            return False
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is the delivery's failure, not ours
            await self._failed(subscription, delivery, error, tokens)
            return False
        self._observers.handled(tokens, "done")
        self.handled += 1
        self._excuses.forget(delivery.message.id)
        self._finished.append(delivery)
        self._some_finished.set()
        return True

    def _refuse_deadly(self, delivery: Delivery) -> None:
        """Raises Poison when every allowed attempt ended without a word: the handler may be what kills the process."""
        if delivery.attempts > self._settings.backoff.limit:
            raise Poison(f"{delivery.attempts - 1} attempts ended without an answer.")

    async def _failed(
        self, subscription: Subscription, delivery: Delivery, error: BaseException, tokens: list[Any]
    ) -> None:
        reason = f"{type(error).__name__}: {legible(error)}"  # its author's __str__ may fail, too
        message, backoff = delivery.message, self._settings.backoff
        excused = self._excuses.excuse(message.id, error)
        hopeless = isinstance(error, Poison) or backoff.spent(delivery.attempts)
        self._tell(delivery, error, bool(excused), hopeless)
        self._observers.handled(tokens, "away" if excused else "dead" if hopeless else "failed", error)
        while True:
            try:
                how = "wait out" if excused else "bury" if hopeless else "postpone"
                with self._observers.settling(self._subscriber, (delivery,), how):
                    if excused:
                        await subscription.wait_out(delivery, self._settings.outage.pause(excused))
                    elif hopeless:
                        await subscription.bury(delivery, reason)
                    else:
                        await subscription.postpone(delivery, backoff.pause(delivery.attempts), reason)
                return
            except DatabaseAway as away:
                # Left as it is, it would come again when its lease lapses, and this attempt would count.
                told = self._about("failure_noted_later", delivery, away)
                log.warning("the failure of %s is noted when the database is back: %s", message.id, away, extra=told)
                excused = excused or 1
                await asyncio.sleep(self._settings.outage.pause(excused))
            except BrokerUnavailable as lost:
                told = self._about("failure_not_noted", delivery, lost)
                log.warning("the failure of %s could not be noted, it comes again: %s", message.id, lost, extra=told)
                return

    def _tell(self, delivery: Delivery, error: BaseException, excused: bool, hopeless: bool) -> None:
        message = delivery.message
        told = self._about("message_failed", delivery, error) | {"dead": hopeless and not excused}
        if excused:
            # Every message in hand says the same, again and again: no traceback tells more than the first line.
            reason = f"{type(error).__name__}: {legible(error)}".partition("\n")[0]
            log.warning("%s waits at %s, the database is away: %s", message.id, message.topic, reason, extra=told)
            return
        log.warning(
            "%s failed for %s at attempt %d",
            message.topic,
            message.id,
            delivery.attempts,
            exc_info=error,
            extra=told,
        )

    async def _flushing(self, subscription: Subscription) -> None:
        failures = 0
        while True:
            await self._some_finished.wait()
            await self._flushed(subscription)
            failures = failures + 1 if self._finished and not self._some_finished.is_set() else 0
            if failures:
                await asyncio.sleep(self._settings.outage.pause(failures))
                self._some_finished.set()

    async def _flushed(self, subscription: Subscription) -> None:
        """Everything that was finished meanwhile is marked together."""
        self._some_finished.clear()
        async with self._flush_lock:
            finished, self._finished = self._finished, []
            if not finished:
                return
            try:
                with self._observers.settling(self._subscriber, finished, "finish"):
                    await subscription.finish(finished)
                return
            except DatabaseAway as away:
                told = self._of_many("marked_later", finished, away)
                log.warning(
                    "%d deliveries are marked as done when the database is back: %s", len(finished), away, extra=told
                )
                self._finished[:0] = finished
            except BrokerUnavailable as lost:
                told = self._of_many("not_marked", finished, lost)
                log.warning(
                    "%d deliveries could not be marked as done, they come again: %s", len(finished), lost, extra=told
                )
                return

    async def _renewing(self, subscription: Subscription) -> None:
        while True:
            await asyncio.sleep(self._settings.renew)
            in_hand = [delivery for line in self._running.values() for delivery in line]
            if in_hand:
                try:
                    await subscription.renew(in_hand)
                except BrokerUnavailable as lost:
                    told = self._of_many("leases_not_renewed", in_hand, lost)
                    log.warning("leases were not renewed: %s", lost, extra=told)

    async def _drained(self, subscription: Subscription) -> None:
        """Let what is running end, give back what is not begun, and cut off what takes too long."""
        waiting = [line.pop() for line in self._running.values() for _ in range(len(line) - 1)]
        await self._given_back(subscription, waiting[::-1])
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.drain)
        cut = list(self._running)
        self._cutting = True
        for task in cut:
            task.cancel()
        if cut:
            told = fields("handlers_cut_off", subscriber=self._subscriber, count=len(cut))
            log.warning("%d handlers did not end in %g s and were cut off", len(cut), self._settings.drain, extra=told)
            await asyncio.wait(cut, timeout=FAREWELL)
        self._cutting = False

    async def _given_back(self, subscription: Subscription, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        try:
            await subscription.give_back(deliveries)
        except BrokerUnavailable as lost:
            told = self._of_many("not_given_back", deliveries, lost)
            log.warning("%d deliveries could not be given back, they come again: %s", len(deliveries), lost, extra=told)

    def _about(self, event: str, delivery: Delivery, error: BaseException) -> dict[str, Any]:
        """What stands beside a line about one delivery."""
        message = delivery.message
        return fields(
            event,
            error,
            subscriber=self._subscriber,
            topic=message.topic,
            message_id=message.id,
            attempt=delivery.attempts,
        )

    def _of_many(self, event: str, deliveries: Sequence[Delivery], error: BaseException) -> dict[str, Any]:
        """What stands beside a line about several."""
        return fields(event, error, subscriber=self._subscriber, count=len(deliveries))


def _forget_cancelling() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
