"""Stores that err only under rivals: each is sound for one caller at a time."""

from __future__ import annotations

import threading
import time

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Swapped
from umavez.core.record import Draft, Millis, Record
from umavez.stores.memory import MemoryStore
from umavez.testing.broken.writing import Reply


class _Overtaken(dict[bytes, Record]):
    """Lets others in before each write, as a busy machine does now and then."""

    def __setitem__(self, digest: bytes, record: Record) -> None:
        time.sleep(0.0001)
        super().__setitem__(digest, record)


class LocksNothing(MemoryStore):
    """Trusts the interpreter to be quick enough."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        super().__init__(clock)
        self._records = _Overtaken()

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Put `draft` where `expected` stands, whoever else is about to."""
        return self._swapped(expected, draft)


class SweepsWhatItSaw(MemoryStore):
    """Looks for the dead, and deletes them by their key a moment later."""

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete what had expired when it was looked at."""
        edge = self._clock.now() - older_than
        with self._lock:
            dead = [digest for digest, record in self._records.items() if record.is_expired(edge)][:limit]
        time.sleep(0.002)
        with self._lock:
            return sum(self._records.pop(digest, None) is not None for digest in dead)


class SettlesInTwoWrites(MemoryStore):
    """Writes the status first and the outcome behind it."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Let others in between the two."""
        if draft.settled is None:
            return super().swap(expected, draft)
        reply = super().swap(expected, draft._replace(settled=None))
        if isinstance(reply, Swapped):
            time.sleep(0.002)
            with self._lock:
                record = self._records[draft.key.digest]
                self._records[draft.key.digest] = record._replace(settled=draft.settled)
        return reply


class FencesByThread(MemoryStore):
    """Sets a block of fences aside for each thread, as a cached sequence does for each session."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        super().__init__(clock)
        self._own = threading.local()

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Take the next fence of the thread's own block."""
        reply = super().swap(expected, draft)
        if not isinstance(reply, Swapped) or not (draft.claims or expected is None):
            return reply
        with self._lock:
            if not getattr(self._own, "block", None):
                self._own.block = list(range(self._fence + 100, self._fence, -1))
                self._fence += 100
            fence = self._own.block.pop()
            self._records[draft.key.digest] = self._records[draft.key.digest]._replace(fence=fence)
        return Swapped(fence, reply.now)


class CutsStamps(MemoryStore):
    """Keeps what fits into the column."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Compare and keep the first 24 characters."""
        return super().swap(expected and expected[:24], draft._replace(stamp=draft.stamp[:24]))
