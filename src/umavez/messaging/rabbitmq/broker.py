"""RabbitBroker: messages through RabbitMQ 3.10 or newer, in quorum queues with confirms."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiormq.abc
from aio_pika.exceptions import DeliveryError, PublishError

from umavez.messaging.broker import UNANSWERED, Answer, BrokerUnavailable, Hopeless, NotNow, Subscription
from umavez.messaging.database import Database
from umavez.messaging.message import Message
from umavez.messaging.rabbitmq.batch import Batch, Unsendable, carried
from umavez.messaging.rabbitmq.connection import FAILURES, RabbitConnection, failures
from umavez.messaging.rabbitmq.subscription import RabbitSubscription
from umavez.messaging.rabbitmq.topology import Topology, declare_exchange
from umavez.stores import without_password

UNROUTABLE = "RabbitMQ returned it: no queue is bound to this topic."
REFUSED = NotNow("RabbitMQ did not take it: a queue is full, or elects its leader.")
ANSWER_SECONDS = 10.0
"""A broker that has just started takes connections before its quorum queues have a leader, and what is asked of them
in that moment may never be answered; asking again on a new connection is."""


class RabbitBroker:
    """Publishes persistent, mandatory and confirmed; subscribes with a watchdog.

    With `parking` (the database), a delivery whose handler failed is acknowledged and waits there for its next
    attempt; without, it goes to the dead letters at once, because a queue cannot wait without turning in circles.
    `watch`: seconds between looks at the consumer. `answer`: seconds after which silence counts as absence.
    """

    def __init__(
        self,
        url: str,
        *,
        topology: Topology | None = None,
        parking: Database | None = None,
        watch: float = 5.0,
        answer: float = ANSWER_SECONDS,
    ) -> None:
        self._url = url
        self._topology = Topology() if topology is None else topology
        self._parking = parking
        self._watch = watch
        self._answer = answer
        self._connection = RabbitConnection(url)
        self._declared_on: object = None

    async def publish(self, messages: Sequence[Message]) -> Sequence[Answer]:
        """See Broker.publish. Messages without an aggregate are all sent before the first confirm is awaited.

        Each is answered by its own confirm, so that a batch cut short in the middle is not sent again as a whole.
        """
        batch = Batch(messages)
        channel = await self._opened()
        chains = [asyncio.create_task(self._chain(channel, batch, chain)) for chain in batch.chains()]
        try:
            await batch.awaited(chains, self._answer)
        finally:
            for chain in chains:
                chain.cancel()
            await asyncio.gather(*chains, return_exceptions=True)
        if UNANSWERED in batch.answers and batch.lost:
            await self._connection.close()  # answers that come late must not be taken for those of another message
            if not any(answer is not UNANSWERED for answer in batch.answers):
                raise BrokerUnavailable(f"RabbitMQ did not confirm: {batch.lost}")
        return batch.answers

    async def _opened(self) -> aiormq.abc.AbstractChannel:
        try:
            async with asyncio.timeout(self._answer):
                return await self._ready()
        except TimeoutError as late:
            await self._connection.close()
            raise BrokerUnavailable(f"RabbitMQ did not answer within {self._answer:g} s.") from late

    async def _chain(self, channel: aiormq.abc.AbstractChannel, batch: Batch, places: Sequence[int]) -> None:
        """Send messages one after the other, each when the one before it is confirmed."""
        for place in places:
            try:
                await self._one(channel, batch.messages[place])
                batch.answer(place, None)
            except Unsendable as error:
                return batch.answer(place, Hopeless(f"RabbitMQ cannot carry it: {error}"))
            except PublishError:
                return batch.answer(place, UNROUTABLE)
            except DeliveryError:
                return batch.answer(place, REFUSED)
            except FAILURES as error:
                batch.lost = f"{type(error).__name__} at {without_password(self._url)}"
                return None
        return None

    async def _one(self, channel: aiormq.abc.AbstractChannel, message: Message) -> None:
        # wait=False: the confirm is what counts; waiting for the socket after every message would cost the batch.
        body, properties = carried(message)
        await channel.basic_publish(  # type: ignore[call-arg]  # aiormq's protocol leaves out `wait`
            body,
            exchange=self._topology.messages,
            routing_key=message.topic,
            properties=properties,
            mandatory=True,
            wait=False,
        )

    async def _ready(self) -> aiormq.abc.AbstractChannel:
        channel = await self._connection.channel()
        with failures(self._url):
            if self._declared_on is not channel:
                await declare_exchange(channel, self._topology)
                self._declared_on = channel
            return await channel.get_underlay_channel()

    async def subscribe(self, subscriber: str, topics: Sequence[str], *, prefetch: int = 20) -> Subscription:
        """See Broker.subscribe."""
        subscription = RabbitSubscription(
            self._url, self._topology, subscriber, topics, prefetch, self._parking, self._watch, self._answer
        )
        try:
            async with asyncio.timeout(self._answer):
                await subscription.open()
        except (TimeoutError, BrokerUnavailable) as error:
            await subscription.close()
            if isinstance(error, BrokerUnavailable):
                raise
            raise BrokerUnavailable(
                f"RabbitMQ did not let {subscriber} subscribe within {self._answer:g} s."
            ) from error
        return subscription

    async def close(self) -> None:
        """Close the publishing connection; subscriptions are closed by whoever made them."""
        await self._connection.close()


__all__ = ["RabbitBroker", "Topology"]
