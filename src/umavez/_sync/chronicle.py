# Written by tools/sync.py from src/umavez/_async/chronicle.py: change that, then run `make format`.
"""What a shell tells a store's history beside its swaps: remarks about what was stopped, and that its process lives."""

from __future__ import annotations

import logging

from umavez.core.key import Key
from umavez.core.telling.events import EventDraft
from umavez.engine.processes import this_process
from umavez.engine.traces import traced
from umavez.errors import UmavezError
from umavez.stores import Chronicle, Store

LOG = logging.getLogger("umavez")


def remark(store: Store, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
    """Keep an event that changed no record, in a store that keeps any. That it cannot be kept is nobody's failure."""
    if not isinstance(store, Chronicle):
        return
    try:
        store.remark(key, traced(event), attempt, fence, holder)
    except UmavezError as error:
        LOG.debug("The history of %s lacks that it was %s: %s", key.operation, event.kind, error)


def announce(store: Store) -> None:
    """Say that this process lives, so that what it holds has a name. Comes again with the heartbeat."""
    if not isinstance(store, Chronicle):
        return
    try:
        store.announce(this_process())
    except Exception as error:  # noqa: BLE001  # nobody waits for it, and the next comes
        LOG.debug("This process could not be announced: %s", error)
