"""Metrics of a relay for Prometheus. Needs umavez[metrics]."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Gauge

from umavez.messaging.inspection import Lag


class RelayMetrics:
    """Keeps what a relay tells it. One for each registry; give it to the relay as `told`."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._seconds = Gauge(
            "umavez_outbox_lag_seconds", "For how long the oldest message that is due has waited", registry=registry
        )
        self._waiting = Gauge(
            "umavez_outbox_waiting", "Messages that are due and not yet published, counted to 10000", registry=registry
        )
        self._published = Gauge(
            "umavez_relay_published", "Messages that this relay has published since it started", registry=registry
        )

    def __call__(self, lag: Lag, published: int) -> None:
        """Note how far behind the relay is and how much it has published."""
        self._seconds.set(lag.seconds)
        self._waiting.set(lag.waiting)
        self._published.set(published)
