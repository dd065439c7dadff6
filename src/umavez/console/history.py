"""Where the moments of a key's page come from: its record and its events; and whatever else somebody tells of it."""

from __future__ import annotations

from typing import Any, Protocol

from umavez.core.reconciliation import CANNOT_TELL
from umavez.core.record import Instant, Record
from umavez.core.telling.events import Process
from umavez.core.telling.history import Moment, Names, Step, entries, moments, steps
from umavez.stores import Chronicle, Store

MOST_PROCESSES = 1000
"""Processes that a page knows by name."""


class History(Protocol):
    """Where moments come from. The page draws what it gets; it is asked in a thread, and may look into a store."""

    def moments(self, record: Record, now: Instant) -> list[Moment]:
        """What is known of `record`, in any order."""
        ...


class RecordHistory:
    """What a record and the store's events tell: who claimed, failed, took over, decided, and came too late."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def moments(self, record: Record, now: Instant) -> list[Moment]:
        """The moments, the oldest first."""
        events = self._store.history(record.key) if isinstance(self._store, Chronicle) else []
        return moments(record, now, events, named(announced(self._store)))


def announced(store: Store, limit: int = MOST_PROCESSES) -> list[Process]:
    """The processes that hold claims, as far as the store knows them; the last seen first."""
    return store.processes(limit) if isinstance(store, Chronicle) else []


def named(known: list[Process]) -> Names:
    """The processes by the prefix of their stamps."""
    return {process.prefix: process for process in known}


def drawn(histories: list[History], record: Record, now: Instant) -> list[Step]:
    """The moments of all `histories` on one line of time."""
    return steps([moment for history in histories for moment in history.moments(record, now)])


def questions(record: Record) -> list[dict[str, Any]]:
    """The entries about questions that the far side could not answer."""
    return [entry for entry in entries(record) if entry.get("what") == CANNOT_TELL]
