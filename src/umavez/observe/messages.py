"""Metrics of messages for Prometheus. Needs umavez[metrics].

What waits and what is dead is asked from the database: see `umavez.observe.standing.StoreMetrics`.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Sequence
from typing import NamedTuple

from umavez.errors import needs
from umavez.messaging.message import Message
from umavez.messaging.observing import MessageObserver
from umavez.observe.families import Bounded, shared

with needs(__name__, "umavez[metrics]"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class MessageMetrics(MessageObserver):
    """Counts what relays publish and how long handlers take. Share it; a second one on a registry is the same."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._counts = shared(registry, _Counts, _Counts.on)

    def sent(self, token: object, published: Sequence[Message], error: BaseException | None) -> None:
        """Count what is the broker's now, by topic."""
        for topic, number in Tally(message.topic for message in published).items():
            self._counts.published.of(topic).inc(number)

    def received(self, subscriber: str, message: Message, attempts: int) -> tuple[str, float]:
        """A handler starts."""
        return subscriber, time.perf_counter()

    def handled(self, token: tuple[str, float], outcome: str, error: BaseException | None) -> None:
        """It has ended."""
        subscriber, began = token
        self._counts.handled.of(subscriber, outcome).observe(time.perf_counter() - began)


class _Counts(NamedTuple):
    """The families of one registry."""

    published: Bounded[Counter]
    handled: Bounded[Histogram]

    @classmethod
    def on(cls, registry: CollectorRegistry) -> _Counts:
        return cls(
            Bounded(
                Counter("umavez_messages_published", "Messages that brokers took over", ("topic",), registry=registry)
            ),
            Bounded(
                Histogram(
                    "umavez_message_seconds",
                    "How long handlers took, by what came of it",
                    ("subscriber", "outcome"),
                    buckets=BUCKETS,
                    registry=registry,
                )
            ),
        )
