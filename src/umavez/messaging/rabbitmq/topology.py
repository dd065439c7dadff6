"""The exchanges and queues in RabbitMQ, declared alike by publishers and subscribers; declaring again is harmless.

One direct exchange carries topics as routing keys. Each subscriber has a quorum queue with a delivery limit of its own
(the server's default differs by version, and before 4.0 there was none) and a quorum queue for its dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractQueue, ExchangeType

AT_LEAST_ONCE_SINCE = (3, 10)
"""From here on a dead letter is confirmed by its queue before the old one lets go; before, it could be lost between."""


@dataclass(frozen=True, slots=True)
class Topology:
    """What everything is called. `prefix` keeps several applications on one virtual host apart."""

    prefix: str = "umavez"
    delivery_limit: int = 20

    @property
    def messages(self) -> str:
        """The exchange that messages are published to."""
        return f"{self.prefix}.messages"

    @property
    def dead_letters(self) -> str:
        """The exchange that dead letters go through."""
        return f"{self.prefix}.dead"

    def queue(self, subscriber: str) -> str:
        """The queue of a subscriber."""
        return f"{self.prefix}.{subscriber}"

    def dead_queue(self, subscriber: str) -> str:
        """The queue of a subscriber's dead letters."""
        return f"{self.prefix}.{subscriber}.dead"


async def declare_exchange(channel: AbstractChannel, topology: Topology) -> AbstractExchange:
    """The exchange for publishing."""
    return await channel.declare_exchange(topology.messages, ExchangeType.DIRECT, durable=True)


async def declare_queues(
    channel: AbstractChannel, topology: Topology, subscriber: str, topics: Sequence[str], version: tuple[int, int]
) -> AbstractQueue:
    """The subscriber's queue, bound to `topics`, with its dead letters behind it."""
    exchange = await declare_exchange(channel, topology)
    dead = await channel.declare_exchange(topology.dead_letters, ExchangeType.DIRECT, durable=True)
    graveyard = await channel.declare_queue(
        topology.dead_queue(subscriber), durable=True, arguments={"x-queue-type": "quorum"}
    )
    await graveyard.bind(dead, subscriber)
    queue = await channel.declare_queue(
        topology.queue(subscriber), durable=True, arguments=queue_arguments(topology, subscriber, version)
    )
    for topic in topics:
        await queue.bind(exchange, topic)
    return queue


def queue_arguments(topology: Topology, subscriber: str, version: tuple[int, int]) -> dict[str, Any]:
    """How the subscriber's queue is declared on a server of `version`."""
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": topology.delivery_limit,
        "x-dead-letter-exchange": topology.dead_letters,
        "x-dead-letter-routing-key": subscriber,
        # A full queue must say no to the publisher; dropping its oldest message would lose what was confirmed.
        "x-overflow": "reject-publish",
    }
    if version >= AT_LEAST_ONCE_SINCE:
        arguments["x-dead-letter-strategy"] = "at-least-once"
    return arguments
