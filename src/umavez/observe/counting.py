"""Metrics: an observer that counts what happened to keys, how long attempts and stores took, what shells answered."""

from __future__ import annotations

import time
from typing import NamedTuple

from umavez.core.key import Key
from umavez.engine.outcome import Event
from umavez.errors import needs
from umavez.observe.families import Bounded, shared

with needs(__name__, "umavez[metrics]"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

ATTEMPT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
STORE_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class Metrics:
    """An observer that counts. Give it to any number of engines; a second one on a registry counts into the same.

    No label holds a scope or a key: there may be as many as customers. Operations beyond `MOST_NAMES` are counted
    together as `other`, so that one whose name is made from data cannot fill the server's memory.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._counts = shared(registry, _Counts, _Counts.on)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        operation, kind = event.key.operation, event.kind
        self._counts.events.of(operation, kind).inc()
        if kind == "waited":
            self._counts.waits.of(operation).observe(event.seconds)

    def started(self, key: Key, attempt: int, fence: int) -> tuple[str, float]:
        """The code of an attempt starts."""
        self._counts.running.of(key.operation).inc()
        return key.operation, time.perf_counter()

    def ended(self, token: tuple[str, float], outcome: str, error: str) -> None:
        """It is over."""
        operation, began = token
        self._counts.running.of(operation).dec()
        self._counts.attempts.of(operation, outcome).observe(time.perf_counter() - began)

    def answered(self, store: str, verb: str, seconds: float, error: BaseException | None) -> None:
        """A store was asked."""
        self._counts.stores.of(store, verb).observe(seconds)
        if error is not None:
            self._counts.store_errors.of(store, type(error).__name__).inc()

    def told_http(self, operation: str, answer: str) -> None:
        """A web shell answered a request with a key."""
        self._counts.http_answers.of(operation, answer).inc()


class _Counts(NamedTuple):
    """The families of one registry."""

    events: Bounded[Counter]
    attempts: Bounded[Histogram]
    running: Bounded[Gauge]
    waits: Bounded[Histogram]
    stores: Bounded[Histogram]
    store_errors: Bounded[Counter]
    http_answers: Bounded[Counter]

    @classmethod
    def on(cls, registry: CollectorRegistry) -> _Counts:
        def counter(name: str, about: str, *labels: str) -> Bounded[Counter]:
            return Bounded(Counter(name, about, labels, registry=registry))

        def histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Bounded[Histogram]:
            return Bounded(Histogram(name, about, labels, buckets=buckets, registry=registry))

        running = Gauge(
            "umavez_attempts_running",
            "Attempts whose code runs now",
            ("operation",),
            multiprocess_mode="livesum",
            registry=registry,
        )
        attempts, waits = "How long the code of attempts ran, by how they ended", "How long callers waited for a rival"
        return cls(
            counter("umavez_events", "What happened to keys", "operation", "kind"),
            histogram("umavez_attempt_seconds", attempts, ATTEMPT_BUCKETS, "operation", "outcome"),
            Bounded(running),
            histogram("umavez_wait_seconds", waits, ATTEMPT_BUCKETS, "operation"),
            histogram("umavez_store_seconds", "How long the store took to answer", STORE_BUCKETS, "store", "verb"),
            counter("umavez_store_errors", "Failures of the store", "store", "kind"),
            counter("umavez_http_answers", "Answers to requests with a key", "operation", "answer"),
        )
