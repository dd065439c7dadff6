"""RabbitSubscription: what a subscriber gets out of its queue, and out of the database where failures wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from aio_pika.abc import AbstractIncomingMessage, AbstractQueue

from umavez.errors import UmavezError
from umavez.messaging.broker import BrokerUnavailable, Delivery
from umavez.messaging.database import Database
from umavez.messaging.local import LocalSubscription
from umavez.messaging.message import Message
from umavez.messaging.rabbitmq_link import FAILURES, Link, failures
from umavez.messaging.rabbitmq_topology import Topology, declare_queues
from umavez.messaging.rows import Parcel

log = logging.getLogger("umavez.rabbitmq")
AGGREGATE = "x-umavez-aggregate"
OWN_HEADERS = ("x-", "umavez-")


class RabbitSubscription:
    """Consumes one quorum queue. A delivery's tag is RabbitMQ's own message, or a row that waited in the database."""

    def __init__(
        self,
        url: str,
        topology: Topology,
        subscriber: str,
        topics: Sequence[str],
        prefetch: int,
        parking: Database | None,
        watch: float,
    ) -> None:
        self._url = url
        self._topology = topology
        self._subscriber = subscriber
        self._topics = tuple(topics)
        self._prefetch = prefetch
        self._watch = watch
        self._link = Link(url)
        self._arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        self._parked = None if parking is None else LocalSubscription(parking, subscriber, asyncio.Event())
        self._looked_at = 0.0
        self._watched_at = 0.0
        self._queue: AbstractQueue | None = None
        self._consumer = ""

    async def open(self) -> None:
        """Declare the queue and consume it. Raises BrokerUnavailable."""
        channel = await self._link.channel()
        with failures(self._url):
            await channel.set_qos(prefetch_count=self._prefetch)
            self._queue = await declare_queues(
                channel, self._topology, self._subscriber, self._topics, self._link.version
            )
            self._consumer = await self._queue.consume(self._arrived.put)
        self._watched_at = asyncio.get_running_loop().time()

    async def take(self, limit: int, wait: float) -> list[Delivery]:
        """See Subscription.take. Raises BrokerUnavailable when the watchdog finds the channel dead or no consumer."""
        await self._watched()
        found = await self._due(limit)
        with suppress(TimeoutError):
            if not found and self._arrived.empty():
                async with asyncio.timeout(min(wait, self._watch)):
                    found.append(_delivery(await self._arrived.get()))
        while len(found) < limit and not self._arrived.empty():
            found.append(_delivery(self._arrived.get_nowait()))
        return found

    async def _watched(self) -> None:
        """Every few seconds ask the server whether it still knows us: a quiet queue and a dead consumer look alike."""
        if not self._link.whole:
            raise BrokerUnavailable("The channel to RabbitMQ has closed; it is opened again.")
        now = asyncio.get_running_loop().time()
        if now - self._watched_at < self._watch:
            return
        self._watched_at = now
        channel = await self._link.channel()
        with failures(self._url):
            async with asyncio.timeout(self._watch):
                told = await channel.declare_queue(self._topology.queue(self._subscriber), passive=True)
        if not told.declaration_result.consumer_count:
            raise BrokerUnavailable("RabbitMQ knows no consumer of this queue any more; it is subscribed again.")

    async def _due(self, limit: int) -> list[Delivery]:
        now = asyncio.get_running_loop().time()
        if self._parked is None or now - self._looked_at < 0.5:
            return []
        found = await self._parked.claim(limit)
        # A full hand means there may be more, so the next look comes at once.
        self._looked_at = 0.0 if len(found) == limit else now
        return found

    async def finish(self, deliveries: Sequence[Delivery]) -> None:
        """See Subscription.finish."""
        rows = [delivery for delivery in deliveries if not _from_queue(delivery)]
        if self._parked is not None and rows:
            await self._parked.finish(rows)
        for delivery in deliveries:
            if _from_queue(delivery):
                await self._told(delivery, "ack")

    async def postpone(self, delivery: Delivery, pause: float, reason: str) -> None:
        """See Subscription.postpone. What came from the queue is parked first and acknowledged after."""
        if not _from_queue(delivery):
            await self._rows().postpone(delivery, pause, reason)
        elif self._parked is None:
            await self._told(delivery, "reject")
        else:
            await self._park(delivery, "WAITING", int(pause * 1000), reason)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """See Subscription.bury."""
        if not _from_queue(delivery):
            await self._rows().bury(delivery, reason)
        elif self._parked is None:
            await self._told(delivery, "reject")
        else:
            await self._park(delivery, "DEAD", 0, reason)

    async def _park(self, delivery: Delivery, state: str, pause_ms: int, reason: str) -> None:
        parcel: Parcel = (self._subscriber, delivery.message, state, delivery.attempts, pause_ms, reason)
        try:
            await self._rows().park(parcel)
        except (BrokerUnavailable, UmavezError):
            # It cannot wait in the database, so it goes back to the queue, whose limit bounds the turns.
            await self._told(delivery, "requeue")
            raise
        await self._told(delivery, "ack")

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """See Subscription.give_back."""
        rows = [delivery for delivery in deliveries if not _from_queue(delivery)]
        if rows:
            await self._rows().give_back(rows)
        for delivery in deliveries:
            if _from_queue(delivery):
                await self._told(delivery, "requeue")

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """See Subscription.renew; RabbitMQ's own deliveries need none while the channel lives."""
        rows = [delivery for delivery in deliveries if not _from_queue(delivery)]
        if rows:
            await self._rows().renew(rows)

    def _rows(self) -> LocalSubscription:
        assert self._parked is not None  # noqa: S101 - only rows of it come here
        return self._parked

    async def _told(self, delivery: Delivery, word: str) -> None:
        """Tell the server what became of a delivery. A tag dies with its channel, and the message then comes again."""
        incoming: AbstractIncomingMessage = delivery.tag
        try:
            if word == "ack":
                await incoming.ack()
            else:
                await incoming.reject(requeue=word == "requeue")
        except FAILURES as error:
            log.info("%s of %s was lost with its channel, it comes again: %s", word, delivery.message.id, error)

    async def close(self) -> None:
        """Cancel the consumer, give back what was not taken, and close. Safe to repeat."""
        queue, self._queue = self._queue, None
        if queue is not None and self._link.whole:
            with suppress(*FAILURES):
                async with asyncio.timeout(2):
                    await queue.cancel(self._consumer)
        while not self._arrived.empty():
            await self._told(_delivery(self._arrived.get_nowait()), "requeue")
        await self._link.close()


def _from_queue(delivery: Delivery) -> bool:
    return not isinstance(delivery.tag, tuple)


def _delivery(incoming: AbstractIncomingMessage) -> Delivery:
    headers = dict(incoming.headers)
    aggregate = headers.get(AGGREGATE)
    message = Message(
        incoming.routing_key or "",
        incoming.body.decode(),
        incoming.message_id or "",
        {name: str(value) for name, value in headers.items() if not name.startswith(OWN_HEADERS)},
        None if aggregate is None else str(aggregate),
    )
    count = headers.get("x-delivery-count", 0)
    return Delivery(message, (count if isinstance(count, int) else 0) + 1, incoming)
