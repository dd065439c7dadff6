"""RabbitSubscription: what a subscriber gets out of its queue, and out of the database where failures wait."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue

from umavez.messaging.broker import BrokerUnavailable, DatabaseAway, Delivery
from umavez.messaging.database import Database
from umavez.messaging.local import LocalSubscription
from umavez.messaging.message import OWN_HEADERS, Message, complaint, told
from umavez.messaging.rabbitmq.connection import FAILURES, RabbitConnection, failures
from umavez.messaging.rabbitmq.shelf import Shelf
from umavez.messaging.rabbitmq.topology import Topology, declare_queues
from umavez.messaging.tables.rows import Parcel

log = logging.getLogger("umavez.rabbitmq")
AGGREGATE = "x-umavez-aggregate"
REASON = "x-umavez-reason"
AWAY_SECONDS = 1.0
"""How long the database is given after it did not answer, before it is asked again."""


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
        answer: float,
    ) -> None:
        self._url = url
        self._topology = topology
        self._subscriber = subscriber
        self._topics = tuple(topics)
        self._prefetch = prefetch
        self._watch = watch
        self._answer = answer
        self._connection = RabbitConnection(url)
        self._arrived: list[AbstractIncomingMessage] = []
        self._shelf = Shelf()
        self._news = asyncio.Event()
        self._parked = None if parking is None else LocalSubscription(parking, subscriber, asyncio.Event())
        self._in_hand: Counter[str | None] = Counter()
        self._looked_at = 0.0
        self._away_until = 0.0
        """Before this moment nothing is handed out: the database was away, and handlers need it as we do."""
        self._watched_at = 0.0
        self._queue: AbstractQueue | None = None
        self._consumer = ""

    async def open(self) -> None:
        """Declare the queue and consume it. Raises BrokerUnavailable."""
        channel = await self._connection.channel()
        with failures(self._url):
            await channel.set_qos(prefetch_count=self._prefetch)
            self._queue = await declare_queues(
                channel, self._topology, self._subscriber, self._topics, self._connection.version
            )
            self._consumer = await self._queue.consume(self._came)
        self._watched_at = asyncio.get_running_loop().time()

    async def take(self, limit: int, wait: float) -> list[Delivery]:
        """See Subscription.take. Raises BrokerUnavailable when the watchdog finds the channel dead or no consumer."""
        await self._watched()
        if await self._still_away(wait):
            return []
        try:
            return await self._taken(limit, wait)
        except DatabaseAway as away:
            self._hold_on(AWAY_SECONDS)
            log.warning("deliveries for %s are held until the database is back: %s", self._subscriber, away)
            return []

    async def _taken(self, limit: int, wait: float) -> list[Delivery]:
        found = await self._due(limit)
        if not found and not self._arrived:
            await self._news_or(min(wait, self._watch, self._shelf.pause(self._in_hand)))
        try:
            await self._sorted_out()
            return found + await self._allowed(self._shelf.take(max(0, limit - len(found)), self._in_hand))
        except BrokerUnavailable:  # the database's absence is one, too
            if not found:
                raise
            return found  # they are claimed, and would count as begun if they were let go

    async def _news_or(self, seconds: float) -> None:
        if seconds > 0:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()

    def _hold_on(self, seconds: float) -> None:
        self._away_until = max(self._away_until, asyncio.get_running_loop().time() + seconds)

    async def _still_away(self, wait: float) -> bool:
        """Whether the database is given more time; waits for a part of it."""
        left = self._away_until - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, min(left, wait)))
        return left > wait

    async def _came(self, incoming: AbstractIncomingMessage) -> None:
        self._arrived.append(incoming)
        self._news.set()

    async def _sorted_out(self) -> None:
        """Bury what came and cannot be read, and let what was delivered before wait in the database.

        RabbitMQ counts how often a message was handed out, the database how often it was begun, and only that may end
        it. So all that came goes through here, whatever there is room for.
        """
        while self._arrived:
            incoming = self._arrived[0]
            delivery, wrong = delivery_of(incoming)
            if wrong:
                await self._dead_letter(incoming, wrong)
            elif delivery.attempts > 1 and self._parked is not None:
                await self._park_unbegun(delivery)
            else:
                self._shelf.put([delivery])
            self._arrived.pop(0)

    async def _allowed(self, fresh: list[Delivery]) -> list[Delivery]:
        """Those that may be handled now; what follows one of its aggregate that waits in the database waits there.

        While an earlier one from the queue is in hand, a later one is handed out too: whoever handles them in order
        gives it back if the earlier fails, and only then it is known which waits behind which.
        """
        try:
            return await self._in_order(fresh)
        except DatabaseAway:
            self._shelf.put(fresh)
            raise

    async def _in_order(self, fresh: list[Delivery]) -> list[Delivery]:
        asked: set[str] = set()
        while self._parked is not None:
            self._shelve_behind(fresh)
            unknown = {a for d in fresh if (a := d.message.aggregate) is not None and not self._in_hand[a]} - asked
            if not unknown:
                break
            held = await self._parked.held(unknown)
            asked |= unknown
            for delivery in [delivery for delivery in fresh if delivery.message.aggregate in held]:
                if not self._shelf.has_before(delivery):
                    await self._park_unbegun(delivery)
                    fresh.remove(delivery)
        self._in_hand.update(delivery.message.aggregate for delivery in fresh)
        return fresh

    def _shelve_behind(self, fresh: list[Delivery]) -> None:
        """Put back what an earlier one of its aggregate has come back before, while the database was asked."""
        for delivery in [one for one in fresh if one.message.aggregate is not None and self._shelf.has_before(one)]:
            fresh.remove(delivery)
            self._shelf.put([delivery])

    def _settled(self, deliveries: Sequence[Delivery]) -> None:
        self._in_hand -= Counter(delivery.message.aggregate for delivery in deliveries if _from_queue(delivery))

    async def _park_unbegun(self, delivery: Delivery) -> None:
        await self._park(delivery._replace(attempts=delivery.attempts - 1), "WAITING", 0, None)
        self._looked_at = 0.0

    async def _dead_letter(self, incoming: AbstractIncomingMessage, reason: str) -> None:
        """Put a message aside in the queue of dead letters, with the reason; the copy is confirmed before it goes.

        Where we cannot write what others have written, the server puts it there as it is.
        """
        log.warning("a message for %s goes to the dead letters: %s", self._subscriber, reason)
        copy = _copied(incoming, reason)
        channel = await self._connection.channel()
        with failures(self._url):
            async with asyncio.timeout(self._answer):
                if copy is None:
                    await incoming.reject(requeue=False)
                    return
                exchange = await channel.get_exchange(self._topology.dead_letters, ensure=False)
                await exchange.publish(copy, self._subscriber, mandatory=True)
                await incoming.ack()

    async def _watched(self) -> None:
        """Every few seconds ask the server whether it still knows us: a quiet queue and a dead consumer look alike."""
        if not self._connection.whole:
            raise BrokerUnavailable("The channel to RabbitMQ has closed; it is opened again.")
        now = asyncio.get_running_loop().time()
        if now - self._watched_at < self._watch:
            return
        self._watched_at = now
        channel = await self._connection.channel()
        with failures(self._url):
            async with asyncio.timeout(self._answer):
                told = await channel.declare_queue(self._topology.queue(self._subscriber), passive=True)
        if not told.declaration_result.consumer_count:
            raise BrokerUnavailable("RabbitMQ knows no consumer of this queue any more; it is subscribed again.")

    async def _due(self, limit: int) -> list[Delivery]:
        now = asyncio.get_running_loop().time()
        if self._parked is None or now - self._looked_at < 0.5:
            return []
        found = await self._parked.claim(limit)
        # Where there was one there may be more, so the next look comes at once.
        self._looked_at = 0.0 if found else now
        return found

    async def finish(self, deliveries: Sequence[Delivery]) -> None:
        """See Subscription.finish."""
        rows = [delivery for delivery in deliveries if not _from_queue(delivery)]
        if self._parked is not None and rows:
            await self._parked.finish(rows)
            self._looked_at = 0.0  # the next of an aggregate may be free now
            self._news.set()
        for delivery in deliveries:
            if _from_queue(delivery):
                await self._told(delivery, "ack")
        self._settled(deliveries)

    async def postpone(self, delivery: Delivery, pause: float, reason: str) -> None:
        """See Subscription.postpone. What came from the queue is parked first and acknowledged after."""
        if not _from_queue(delivery):
            await self._rows().postpone(delivery, pause, reason)
        elif self._parked is None:
            await self._dead_letter(delivery.tag, reason)
        else:
            await self._parked_or_held(delivery, "WAITING", pause, reason)
        self._settled([delivery])

    async def wait_out(self, delivery: Delivery, pause: float) -> None:
        """See Subscription.wait_out. What came from the queue stays in hand, unacknowledged."""
        if not _from_queue(delivery):
            await self._rows().wait_out(delivery, pause)
        else:
            self._shelf.put_back(delivery, pause)
        self._settled([delivery])

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """See Subscription.bury."""
        if not _from_queue(delivery):
            await self._rows().bury(delivery, reason)
        elif self._parked is None:
            await self._dead_letter(delivery.tag, reason)
        else:
            await self._parked_or_held(delivery, "DEAD", AWAY_SECONDS, reason)
        self._settled([delivery])

    async def _parked_or_held(self, delivery: Delivery, state: str, pause: float, reason: str | None) -> None:
        """Park it; with the database away it stays in hand and is handled once more, which counts for nothing."""
        try:
            await self._park(delivery, state, 0 if state == "DEAD" else int(pause * 1000), reason)
        except DatabaseAway as away:
            log.warning("%s is held until the database is back: %s", delivery.message.id, away)
            self._shelf.put_back(delivery, min(pause, AWAY_SECONDS))

    async def _park(self, delivery: Delivery, state: str, pause_ms: int, reason: str | None) -> None:
        parcel: Parcel = (
            self._subscriber,
            delivery.message,
            state,
            delivery.attempts,
            pause_ms,
            None if reason is None else told(reason),
        )
        await self._rows().park(parcel)
        await self._told(delivery, "ack")

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """See Subscription.give_back."""
        rows = [delivery for delivery in deliveries if not _from_queue(delivery)]
        if rows:
            await self._rows().give_back(rows)
        for delivery in deliveries:
            if not _from_queue(delivery):
                continue
            aggregate = delivery.message.aggregate
            if aggregate is not None and self._shelf.has_before(delivery):
                self._shelf.put_back(delivery)  # behind the earlier one that came back
            elif self._parked is not None and aggregate is not None:
                # Back in the queue it could be passed by a later one of its aggregate.
                await self._parked_or_held(delivery._replace(attempts=delivery.attempts - 1), "WAITING", 0, None)
                self._looked_at = 0.0
            else:
                await self._told(delivery, "requeue")
        self._settled(deliveries)

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """See Subscription.renew; RabbitMQ's own deliveries need none while the channel lives."""
        rows = [delivery for delivery in deliveries if not _from_queue(delivery)]
        if rows:
            await self._rows().renew(rows)

    def _rows(self) -> LocalSubscription:
        assert self._parked is not None  # noqa: S101 - only rows of it come here
        return self._parked

    async def _told(self, delivery: Delivery, word: str) -> None:
        await _said(delivery.tag, word)

    async def close(self) -> None:
        """Cancel the consumer, give back what was not taken, and close. Safe to repeat."""
        queue, self._queue = self._queue, None
        if queue is not None and self._connection.whole:
            with suppress(*FAILURES):
                async with asyncio.timeout(2):
                    await queue.cancel(self._consumer)
        for incoming in [*(delivery.tag for delivery in self._shelf.cleared()), *self._arrived]:
            await _said(incoming, "requeue")
        self._arrived = []
        await self._connection.close()


def _from_queue(delivery: Delivery) -> bool:
    return not isinstance(delivery.tag, tuple)


def _copied(incoming: AbstractIncomingMessage, reason: str) -> aio_pika.Message | None:
    """The message with the reason; None where its headers hold what the client reads and does not write."""
    copy = aio_pika.Message(
        incoming.body,
        headers={**incoming.headers, REASON: told(reason)},
        message_id=incoming.message_id,
        content_type=incoming.content_type,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )
    try:
        copy.properties.marshal()
    except Exception as error:  # noqa: BLE001 - whatever it is, this message stops nobody
        log.warning("its reason cannot be written beside its headers: %r", error)
        return None
    return copy


async def _said(incoming: AbstractIncomingMessage, word: str) -> None:
    """Tell the server what became of a delivery. A tag dies with its channel, and the message then comes again."""
    try:
        if word == "ack":
            await incoming.ack()
        else:
            await incoming.reject(requeue=True)
    except FAILURES as error:
        log.info("%s of %s was lost with its channel, it comes again: %s", word, incoming.message_id, error)


def delivery_of(incoming: AbstractIncomingMessage) -> tuple[Delivery, str]:
    """The delivery, and what is wrong with it if anything: others publish here too, and not always what we can read."""
    headers = dict(incoming.headers)
    aggregate = headers.get(AGGREGATE)
    count = headers.get("x-delivery-count", 0)
    attempts = (count if isinstance(count, int) else 0) + 1
    message = Message(
        incoming.routing_key or "",
        incoming.body.decode(errors="replace"),
        incoming.message_id or "",
        {name: str(value) for name, value in headers.items() if not name.lower().startswith(OWN_HEADERS)},
        None if aggregate is None else str(aggregate),
    )
    try:
        incoming.body.decode()
    except UnicodeDecodeError as error:
        return Delivery(message, attempts, incoming), f"Its body is not UTF-8 ({error.reason} at {error.start})."
    return Delivery(message, attempts, incoming), complaint(message)
