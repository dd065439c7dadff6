"""Looking: one process asks the store once a minute how much stands in it, and keeps that for charts.

All who count may look; whoever did so in the last minute goes on, and another only where half of a minute has passed
without. Two who look at once harm nobody: readers take the highest.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from typing import Protocol

from umavez.core.record import Instant, Millis, Query, Record, Status
from umavez.core.telling.gauges import GAUGES, Gauge, gauge_tally, higher
from umavez.core.telling.minutes import HOUR, MINUTE, Tally, begun
from umavez.errors import SchemaOutdated, StoreError
from umavez.messaging.inspection import LAG_COUNTED, Inspection
from umavez.sql.connection import Sql
from umavez.sql.database import reading
from umavez.sql.flow import Ask, SqlFlow, carry
from umavez.stores import Store, Tallies, holds_tables

LOG = logging.getLogger("umavez.observe")
MOST = 1000
"""Records where counting ends: it is done every minute."""

_DEAD = "SELECT count(*) FROM (SELECT 1 AS one FROM {table} WHERE state = 'DEAD' LIMIT {most}) d"


class Counting(Store, Tallies, Protocol):
    """A store that keeps numbers, too."""


class Looker:
    """Keeps gauges in a store. `url` leads to its tables of messages; without one they are not looked at."""

    def __init__(self, process: str, url: str) -> None:
        self._process = process
        self._url = url if url and holds_tables(url) else ""
        self._mark = secrets.token_hex(6)
        self._looked: Instant = 0
        """The minute in which this one looked last."""
        self._passed: Instant = 0
        """The minute in which somebody else was seen to have looked."""
        self._hour: dict[tuple[Instant, str], Gauge] = {}

    def look(self, store: Counting, now: Instant) -> bool:
        """Look, where it is this one's turn, and keep what stands; says whether. Raises StoreError."""
        at = begun(now, MINUTE)
        if not self._turn(store, at, now - at):
            return False
        found = [*_of_records(store), *(_of_messages(self._url) if self._url else ())]
        hour = begun(now, HOUR)
        self._hour = {(hour, gauge.name): higher(gauge, self._hour.get((hour, gauge.name))) for gauge in found}
        store.tally(self._process, MINUTE, self._tallies(at, found))
        store.tally(self._process, HOUR, self._tallies(hour, list(self._hour.values())))
        self._looked = at
        return True

    def _turn(self, store: Counting, at: Instant, into: Millis) -> bool:
        if at in (self._looked, self._passed):
            return False
        if self._looked != at - MINUTE and into < MINUTE // 2:
            return False
        if any(tally.at == at for tally in store.tallied(MINUTE, MINUTE, GAUGES)):
            self._passed = at
            return False
        return True

    def _tallies(self, at: Instant, gauges: list[Gauge]) -> list[Tally]:
        return [gauge_tally(at, gauge, self._mark) for gauge in gauges]


def _of_records(store: Store) -> Iterator[Gauge]:
    asked = (("unknown", Query(status=Status.UNKNOWN, limit=MOST)), ("lapsed", Query(lapsed=True, limit=MOST)))
    for name, query in asked:
        found = store.find(query)
        yield Gauge(name, len(found), age_of(store, found))


def age_of(store: Store, records: Sequence[Record]) -> float:
    """Seconds since the first of them was made, by the store's clock; 0 where there is none."""
    if not records:
        return 0.0
    return max(store.read(records[0].key).now - records[0].created_at, 0) / 1000


def _of_messages(url: str) -> list[Gauge]:
    """What stands in the tables of messages; nothing where there are none, or where they cannot be asked."""
    try:
        with reading(url, "messages") as connection:
            sql = Sql(connection)
            return carry(_messages(sql), sql)
    except SchemaOutdated:
        return []
    except StoreError as error:
        # What the records say is kept all the same.
        LOG.warning("The tables of messages could not be asked how much stands in them: %s", error)
        return []


def _messages(sql: Sql) -> SqlFlow[list[Gauge]]:
    lag = yield from Inspection(sql.dialect).lag()
    dead = 0
    for table in ("umavez_outbox", "umavez_deliveries"):
        dead += int((yield Ask(_DEAD.format(table=table, most=LAG_COUNTED)))[0][0])
    return [Gauge("outbox", lag.waiting, lag.seconds), Gauge("dead", dead)]
