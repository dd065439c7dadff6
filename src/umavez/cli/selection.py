"""Selection: records that a store cannot tell apart by itself, such as leases that are held from those that lapsed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from umavez.core.record import Instant, Query, Record
from umavez.stores import Store

GROWTH = 4
"""How many times as many records are looked at when too few of the last look were wanted."""


class Selection(NamedTuple):
    """What was found, oldest first, at `now` by the store's clock; `more` says that a limit cut it."""

    records: list[Record]
    now: Instant
    more: bool


def selected(store: Store, query: Query, wanted: Callable[[Record, Instant], bool], limit: int) -> Selection:
    """Up to `limit` records that match `query` and are `wanted`."""
    size = limit + 1
    while True:
        # One more than is shown tells whether there are more.
        found = store.find(replace(query, limit=size))
        now = store.read(found[0].key).now if found else 0
        chosen = [record for record in found if wanted(record, now)]
        if len(chosen) > limit or len(found) < size:
            return Selection(chosen[:limit], now, len(chosen) > limit)
        size *= GROWTH
