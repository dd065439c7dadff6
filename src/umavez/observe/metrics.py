"""Metrics for Prometheus: every event by operation and kind, how long attempts took, and what stands in the store.

Needs umavez[metrics].
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from umavez.core.record import Query, Record, Status
from umavez.engine.outcome import Event
from umavez.errors import StoreError
from umavez.stores import Store

LOG = logging.getLogger("umavez.observe")

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
ENDS = frozenset(("succeeded", "refused", "failed", "unknown", "adopted"))
"""Kinds that end an attempt, and so have a duration."""
MOST = 1000
"""Where counting records ends: a scrape must stay cheap."""


class Metrics:
    """Counts events. One for each registry; give it to any number of engines."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._events = Counter("umavez_events", "What happened to keys", ("operation", "kind"), registry=registry)
        self._seconds = Histogram(
            "umavez_attempt_seconds", "How long attempts ran", ("operation",), buckets=BUCKETS, registry=registry
        )

    def __call__(self, event: Event) -> None:
        """Count one event. Scope is no label: there may be as many as customers."""
        operation = event.key.operation
        self._events.labels(operation, event.kind).inc()
        if event.kind in ENDS:
            self._seconds.labels(operation).observe(event.seconds)


class StoreMetrics(Collector):
    """What stands in a store, asked for at every scrape: nothing has to run for the numbers to be true.

    Every process of a server tells the same, so any of them may be scraped. Counts end at `most`.
    """

    def __init__(self, store: Store, registry: CollectorRegistry = REGISTRY, most: int = MOST) -> None:
        self._store = store
        self._most = most
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would ask the store for it when the server starts."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The gauges. Where the store cannot be asked, `umavez_store_up` is 0 and the others are left out."""
        up = GaugeMetricFamily("umavez_store_up", "Whether the store of records answered this scrape")
        try:
            found = self._gauges()
        except StoreError as error:
            LOG.warning("The store could not be asked for its numbers: %s", error)
            up.add_metric((), 0)
            return (up,)
        up.add_metric((), 1)
        return (up, *found)

    def _gauges(self) -> list[Metric]:
        unknown = self._store.find(Query(status=Status.UNKNOWN, limit=self._most))
        lapsed = self._store.find(Query(lapsed=True, limit=self._most))
        told = (
            ("umavez_oldest_unknown_seconds", "Age of the oldest record of unknown outcome", self._age(unknown)),
            ("umavez_unknown_records", f"Records of unknown outcome, up to {self._most}", len(unknown)),
            ("umavez_oldest_lapsed_seconds", "Age of the oldest record whose holder is gone", self._age(lapsed)),
            ("umavez_lapsed_records", f"Records whose holder is gone, up to {self._most}", len(lapsed)),
        )
        return [GaugeMetricFamily(name, about, value) for name, about, value in told]

    def _age(self, records: Sequence[Record]) -> float:
        """Seconds since the first of them was made, by the store's clock; 0 when there is none."""
        if not records:
            return 0.0
        return max(self._store.read(records[0].key).now - records[0].created_at, 0) / 1000


def scraped(counted: CollectorRegistry, asked: CollectorRegistry) -> bytes:
    """What a scrape of this process answers: what was counted, and what `asked` collects at this moment.

    With PROMETHEUS_MULTIPROC_DIR the counters are the sums over all processes that share the folder.
    """
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        counted = CollectorRegistry()
        MultiProcessCollector(counted)  # type: ignore[no-untyped-call]  # the library leaves it untyped
    return generate_latest(counted) + generate_latest(asked)
