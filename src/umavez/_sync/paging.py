# Written by tools/sync.py from src/umavez/_async/paging.py: change that, then run `make format`.
"""Pages: all that matches a query, a bounded number of records at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from umavez.core.record import Query, Record
from umavez.stores import Store


def pages(store: Store, query: Query) -> Iterator[list[Record]]:
    """What matches, `query.limit` records at a time and in order; what changes meanwhile is neither lost nor doubled.

    For whoever wants something of the records that a store cannot filter by: a limit counts what is wanted then, not
    what was looked at.
    """
    while True:
        found = store.find(query)
        if found:
            yield found
        if len(found) < query.limit:
            return
        query = replace(query, after=found[-1].position)
