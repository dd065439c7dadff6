"""StoreMetrics: what stands in a store, for Prometheus. Needs umavez[metrics]."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable

from umavez.core.record import Query, Status
from umavez.errors import StoreError, needs
from umavez.observe.gauges import age_of
from umavez.observe.tables import table_gauges
from umavez.stores import Store, holds_tables

with needs(__name__, "umavez[metrics]"):
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

LOG = logging.getLogger("umavez.observe")

MOST = 1000
"""Where counting records ends: a scrape must stay cheap."""
FRESH = 10.0
"""Seconds that an answer of the store is told again: however many scrape, it is asked no more often."""


class StoreMetrics(Collector):
    """What stands in a store, asked for when scraped: nothing has to run for the numbers to be true.

    Every process of a server tells the same, so any of them may be scraped. Counts end at `most`. With the store's
    `url`, and if it is a database, the tables of messages and sequences beside the records are looked at too; without
    a store, they alone.
    """

    def __init__(
        self,
        store: Store | None,
        registry: CollectorRegistry = REGISTRY,
        most: int = MOST,
        *,
        url: str | None = None,
        fresh: float = FRESH,
    ) -> None:
        self._store = store
        self._most = most
        self._url = url if url is not None and holds_tables(url) else None
        self._fresh = fresh
        self._lock = threading.Lock()
        self._known: tuple[float, tuple[Metric, ...]] | None = None
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would ask the store for it when the server starts."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The gauges. Where the store cannot be asked, `umavez_store_up` is 0 and the others are left out.

        Where only the tables beside the records cannot, it is theirs that are.
        """
        with self._lock:
            if self._known is None or time.monotonic() - self._known[0] >= self._fresh:
                self._known = (time.monotonic(), self._asked())
            return self._known[1]

    def _asked(self) -> tuple[Metric, ...]:
        found: list[Metric] = []
        try:
            if self._store is not None:
                found += [_up(1), *self._records(self._store)]
        except StoreError as error:
            LOG.warning("The store could not be asked for its numbers: %s", error)
            return (_up(0),)
        try:
            for gauge in () if self._url is None else table_gauges(self._url):
                found.append(gauge)  # what was found before the others failed is kept
        except StoreError as error:
            # Its records were told: what is wrong with other tables must wake nobody for them, nor hide them.
            LOG.warning("The tables beside the records could not be asked for their numbers: %s", error)
        return tuple(found)

    def _records(self, store: Store) -> list[Metric]:
        unknown = store.find(Query(status=Status.UNKNOWN, limit=self._most))
        lapsed = store.find(Query(lapsed=True, limit=self._most))
        told = (
            ("umavez_oldest_unknown_seconds", "Age of the oldest record of unknown outcome", age_of(store, unknown)),
            ("umavez_unknown_records", f"Records of unknown outcome, up to {self._most}", len(unknown)),
            ("umavez_oldest_lapsed_seconds", "Age of the oldest record whose holder is gone", age_of(store, lapsed)),
            ("umavez_lapsed_records", f"Records whose holder is gone, up to {self._most}", len(lapsed)),
        )
        return [GaugeMetricFamily(name, about, value) for name, about, value in told]


def _up(answered: int) -> Metric:
    return GaugeMetricFamily("umavez_store_up", "Whether the store of records answered", answered)
