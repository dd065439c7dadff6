"""Stores that err in the swap itself: what is compared, what is written, what is answered."""

from __future__ import annotations

import time

from umavez.core.flow import Stale, Swapped
from umavez.core.record import Draft, Settled, recorded
from umavez.stores.memory import MemoryStore

Reply = Swapped | Stale


class IgnoresTheStamp(MemoryStore):
    """Updates by key alone."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Take whatever stands there for what was expected."""
        current = self._records.get(draft.key.digest)
        return super().swap(current.stamp if expected is not None and current else expected, draft)


class ChecksThenActs(MemoryStore):
    """Looks under the lock and writes under the lock, but lets go in between."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Look, let rivals in, write."""
        current = self._records.get(draft.key.digest)
        if (None if current is None else current.stamp) != expected:
            return Stale(current, self._clock.now())
        time.sleep(0.002)
        now = self._clock.now()
        with self._lock:
            if draft.claims or current is None:
                self._fence += 1
            fence = self._fence if draft.claims or current is None else current.fence
            created_at = now if current is None or draft.fresh else current.created_at
            self._records[draft.key.digest] = recorded(draft, fence, created_at, now)
        return Swapped(fence, now)


class InsertsWithoutALock(ChecksThenActs):
    """Updates are atomic, inserts are not: a read before an INSERT OR REPLACE."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Look and then insert; change properly."""
        return super().swap(expected, draft) if expected is None else MemoryStore.swap(self, expected, draft)


class LosesEmptyOutcomes(MemoryStore):
    """Takes an empty text for none, as `if body:` does."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Drop an outcome whose body is empty."""
        if draft.settled is not None and draft.settled.body == "":
            draft = draft._replace(settled=None)
        return super().swap(expected, draft)


class KeepsNothingAsEmpty(MemoryStore):
    """Takes no text for an empty one, as a column that may not be NULL does."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Write empty texts instead of none."""
        settled = draft.settled and Settled(draft.settled.ok, draft.settled.body or "")
        return super().swap(expected, draft._replace(settled=settled, progress=draft.progress or ""))


class HidesALostSwap(MemoryStore):
    """Trusts a row count that it never looked at."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Say done for a change that was not."""
        reply = super().swap(expected, draft)
        if isinstance(reply, Stale) and expected is not None and reply.current is not None:
            return Swapped(reply.current.fence, reply.now)
        return reply


class SettlesButSaysStale(MemoryStore):
    """Does the change, then shows the caller an older record."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Say lost for a change that was done."""
        before = self._records.get(draft.key.digest)
        reply = super().swap(expected, draft)
        return Stale(before, reply.now) if draft.settled is not None else reply


class ShowsNothingWhenStale(MemoryStore):
    """Says that somebody was faster, not who."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Leave out the current record."""
        reply = super().swap(expected, draft)
        return Stale(None, reply.now) if isinstance(reply, Stale) else reply


class RepeatsASwap(MemoryStore):
    """Takes its own stamp for the one expected, so that a repeated swap is done again."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Do it again when the draft stands there already."""
        current = self._records.get(draft.key.digest)
        own = current is not None and current.stamp == draft.stamp
        return super().swap(draft.stamp if own else expected, draft)


class ResurrectsTheVanished(MemoryStore):
    """Inserts when the record to change is gone, as an upsert does."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Insert where nothing stands, whatever was expected."""
        return super().swap(expected if draft.key.digest in self._records else None, draft)
