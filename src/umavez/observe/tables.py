"""What stands in the tables beside the records: messages that wait or are dead, numbers that run out, unswept records.

Every question is answered from an index, or from so many rows and no more. Tables that are not there are passed over:
their instrument is not used.
"""

# ruff: noqa: S608 - statements are joined from constants of the module; values always travel as parameters

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from umavez.errors import SchemaOutdated, needs
from umavez.messaging.inspection import LAG_COUNTED, Inspection
from umavez.sequences.standing import ending
from umavez.sql.connection import Dialect, Sql
from umavez.sql.database import reading
from umavez.sql.flow import Ask, SqlFlow, carry, now_at

with needs(__name__, "umavez[metrics]"):
    from prometheus_client.core import GaugeMetricFamily, Metric

OUTBOX = "(outbox)"
"""Who is named as the subscriber of messages that no broker took."""
MOST_DEAD = 10_000
MOST_SERIES = 1000
MOST_SUBSCRIBERS = 200
SECONDS = 5
"""How long a question may take where the database can be told so."""

_FIRST_END = "min(expires_at) FROM idempotency_records WHERE expires_at IS NOT NULL"
"""The first entry of an index, whether it has expired or not: to look for one that has would read on where none has."""

_BEHIND = {
    Dialect.POSTGRES: f"SELECT (extract(epoch FROM clock_timestamp() - ends.first) * 1000)::bigint"
    f" FROM (SELECT {_FIRST_END.replace(' FROM', ' AS first FROM', 1)}) ends",
    Dialect.SQLITE: f"SELECT {now_at(Dialect.SQLITE)} - {_FIRST_END}",
    Dialect.MARIADB: f"SELECT {now_at(Dialect.MARIADB)} - {_FIRST_END}",
}
"""Milliseconds since that end; less than none where it is to come."""

_DEAD = {
    OUTBOX: f"SELECT count(*) FROM (SELECT 1 AS one FROM umavez_outbox WHERE state = 'DEAD' LIMIT {MOST_DEAD}) d",
    "each": "SELECT subscriber, count(*) FROM (SELECT subscriber FROM umavez_deliveries WHERE state = 'DEAD'"
    f" LIMIT {MOST_DEAD}) d GROUP BY subscriber",
    "all": f"SELECT DISTINCT subscriber FROM umavez_subscriptions ORDER BY subscriber LIMIT {MOST_SUBSCRIBERS}",
}


def table_gauges(url: str) -> Iterator[Metric]:
    """The gauges of the tables at `url`, a database. Raises StoreError."""
    for look in (_sweep, _messages, _numbers):
        try:
            # A connection each: one that has met a missing table is of no more use.
            with reading(url, "tables") as connection:
                yield from _asked(Sql.on(connection), look)
        except SchemaOutdated:
            continue


def _asked(sql: Sql, look: Callable[[Dialect], SqlFlow[list[Metric]]]) -> list[Metric]:
    if sql.dialect is Dialect.POSTGRES:
        sql.rows("SELECT set_config('statement_timeout', ?, false)", (str(SECONDS * 1000),))
    return carry(look(sql.dialect), sql)


def _sweep(dialect: Dialect) -> SqlFlow[list[Metric]]:
    rows = yield Ask(_BEHIND[dialect])
    behind = max(rows[0][0] or 0, 0) / 1000
    return [_gauge("umavez_sweep_behind_seconds", "For how long the longest expired record waits to be swept", behind)]


def _messages(dialect: Dialect) -> SqlFlow[list[Metric]]:
    lag = yield from Inspection(dialect).lag()
    dead = GaugeMetricFamily(
        "umavez_dead_messages", f"Messages put aside as dead, up to {MOST_DEAD} in all", labels=("subscriber",)
    )
    counts: dict[str, int] = {OUTBOX: (yield Ask(_DEAD[OUTBOX]))[0][0]}
    counts |= {name: 0 for (name,) in (yield Ask(_DEAD["all"]))}
    counts |= dict((yield Ask(_DEAD["each"])))
    for name in sorted(counts, key=lambda name: -counts[name])[:MOST_SUBSCRIBERS]:
        dead.add_metric((name,), counts[name])
    return [
        _gauge("umavez_outbox_waiting", f"Messages that are due and not published, up to {LAG_COUNTED}", lag.waiting),
        _gauge("umavez_outbox_oldest_due_seconds", "For how long the oldest of them has been due", lag.seconds),
        dead,
    ]


def _numbers(_: Dialect) -> SqlFlow[list[Metric]]:
    """By the name of the series: the least of all organisations, whose names are no label."""
    least: dict[str, int] = {}
    for standing in (yield from ending(MOST_SERIES)):
        left, name = standing.left, standing.series[1]
        if left is not None:
            least[name] = min(left, least.get(name, left))
    family = GaugeMetricFamily(
        "umavez_sequence_left", "Numbers left in the organisation's series that has the fewest", labels=("series",)
    )
    for name in sorted(least, key=lambda name: least[name])[:MOST_SUBSCRIBERS]:
        family.add_metric((name,), least[name])
    return [family]


def _gauge(name: str, about: str, value: Any) -> Metric:
    return GaugeMetricFamily(name, about, value)
