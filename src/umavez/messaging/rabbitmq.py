"""RabbitBroker: messages through RabbitMQ 3.10 or newer, in quorum queues with confirms."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aiormq.abc
from aio_pika.abc import DeliveryMode
from aio_pika.exceptions import DeliveryError, PublishError
from pamqp.commands import Basic

from umavez.messaging.broker import BrokerUnavailable, Subscription
from umavez.messaging.database import Database
from umavez.messaging.message import Message
from umavez.messaging.rabbitmq_link import FAILURES, Link, failures
from umavez.messaging.rabbitmq_subscription import RabbitSubscription
from umavez.messaging.rabbitmq_topology import Topology, declare_exchange

UNROUTABLE = "RabbitMQ returned it: no queue is bound to this topic."
REFUSED = "RabbitMQ refused it: a queue is full or not available."
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
        self._link = Link(url)
        self._declared_on: object = None

    async def publish(self, messages: Sequence[Message]) -> Sequence[str | None]:
        """See Broker.publish. All are sent before the first confirm is awaited."""
        try:
            async with asyncio.timeout(self._answer):
                channel = await self._ready()
                answers = await asyncio.gather(
                    *(self._one(channel, message) for message in messages), return_exceptions=True
                )
        except TimeoutError as late:
            await self._link.close()
            raise BrokerUnavailable(f"RabbitMQ did not confirm within {self._answer:g} s.") from late
        return [_answer(answer, self._url) for answer in answers]

    async def _one(self, channel: aiormq.abc.AbstractChannel, message: Message) -> None:
        # wait=False: the confirm is what counts; waiting for the socket after every message would cost the batch.
        await channel.basic_publish(  # type: ignore[call-arg]  # aiormq's protocol leaves out `wait`
            message.body.encode(),
            exchange=self._topology.messages,
            routing_key=message.topic,
            properties=properties_of(message),
            mandatory=True,
            wait=False,
        )

    async def _ready(self) -> aiormq.abc.AbstractChannel:
        channel = await self._link.channel()
        with failures(self._url):
            if self._declared_on is not channel:
                await declare_exchange(channel, self._topology)
                self._declared_on = channel
            return await channel.get_underlay_channel()

    async def subscribe(self, subscriber: str, topics: Sequence[str], *, prefetch: int = 20) -> Subscription:
        """See Broker.subscribe."""
        subscription = RabbitSubscription(
            self._url, self._topology, subscriber, topics, prefetch, self._parking, self._watch
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
        await self._link.close()


def properties_of(message: Message) -> Basic.Properties:
    """How a message travels: persistent, with its own id, topic and ordering key."""
    headers: dict[str, Any] = dict(message.headers)
    if message.aggregate is not None:
        headers["x-umavez-aggregate"] = message.aggregate
    return Basic.Properties(
        content_type="application/json",
        delivery_mode=int(DeliveryMode.PERSISTENT),
        message_id=message.id,
        message_type=message.topic,
        headers=headers,
    )


def _answer(answer: object, url: str) -> str | None:
    if isinstance(answer, PublishError):
        return UNROUTABLE
    if isinstance(answer, DeliveryError):
        return REFUSED
    if isinstance(answer, (*FAILURES, asyncio.CancelledError)):
        with failures(url):
            raise ConnectionError(str(answer)) from (answer if isinstance(answer, Exception) else None)
    if isinstance(answer, BaseException):
        raise answer
    return None


__all__ = ["RabbitBroker", "Topology"]
