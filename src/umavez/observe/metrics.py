"""Metrics for Prometheus: every event by operation and kind, and how long attempts took. Needs umavez[metrics]."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from umavez.outcome import Event

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
ENDS = frozenset(("succeeded", "refused", "failed", "unknown", "adopted"))
"""Kinds that end an attempt, and so have a duration."""


class Metrics:
    """Counts events. One for each registry; give it to any number of engines."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._events = Counter("umavez_events", "What happened to keys", ("operation", "kind"), registry=registry)
        self._seconds = Histogram(
            "umavez_attempt_seconds", "How long attempts ran", ("operation",), buckets=BUCKETS, registry=registry
        )
        self._oldest = Gauge(
            "umavez_oldest_unknown_seconds", "Age of the oldest record of unknown outcome", registry=registry
        )

    def __call__(self, event: Event) -> None:
        """Count one event. Scope is no label: there may be as many as customers."""
        operation = event.key.operation
        self._events.labels(operation, event.kind).inc()
        if event.kind in ENDS:
            self._seconds.labels(operation).observe(event.seconds)

    def oldest_unknown(self, seconds: float) -> None:
        """Tell how old the oldest unknown outcome is; 0 when there is none. A reconciler calls this."""
        self._oldest.set(seconds)
