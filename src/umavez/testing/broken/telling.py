"""Stores that keep events and origins apart from the records they belong to."""

from __future__ import annotations

from umavez.core.flow import Stale, Swapped
from umavez.core.record import Draft, Millis
from umavez.core.telling.events import PastEvent, holder_of
from umavez.stores.memory import MemoryStore


class TellsWhatWasRefused(MemoryStore):
    """Writes the event first, and then looks whether the swap is done."""

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Tell it in any case."""
        if draft.event is not None:
            past = PastEvent(self._clock.now(), draft.event.kind, draft.attempt, 0, holder_of(draft.stamp))
            self._keep(draft.key.digest, past)
        return super().swap(expected, draft._replace(event=None))


class KeepsTheEventsOfTheSwept(MemoryStore):
    """Deletes records and nothing else."""

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Leave the events behind."""
        events = {digest: past.copy() for digest, past in self._events.items()}
        swept = super().sweep(limit, older_than)
        self._events = events
        return swept


class TellsTheCleanPath(MemoryStore):
    """Writes an event for every swap, and so makes every call dearer."""

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Tell all of it."""
        reply = super().swap(expected, draft)
        if isinstance(reply, Swapped) and draft.event is None:
            self._keep(draft.key.digest, PastEvent(reply.now, "written", draft.attempt, reply.fence, draft.stamp))
        return reply


class LosesTheOriginAtTheOutcome(MemoryStore):
    """Writes whole records, and takes a draft without an origin for one that has none."""

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Forget it with the first write that does not repeat it."""
        reply = super().swap(expected, draft)
        digest = draft.key.digest
        if isinstance(reply, Swapped) and draft.origin is None:
            self._records[digest] = self._records[digest]._replace(origin=None)
        return reply


class KeepsTheFirstOrigin(MemoryStore):
    """Writes the origin where nothing stands, and never again."""

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Leave it out of every change."""
        return super().swap(expected, draft if expected is None else draft._replace(origin=None))


class MixesOriginsUp(MemoryStore):
    """Writes the origin in a statement of its own, by the key alone."""

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Write it whoever stands there."""
        reply = super().swap(expected, draft._replace(origin=None))
        digest = draft.key.digest
        if draft.origin is not None and digest in self._records:
            self._records[digest] = self._records[digest]._replace(origin=draft.origin)
        return reply
