"""Stores that err in what stays and what is found again: sweeping, times, columns, queries."""

from __future__ import annotations

from dataclasses import replace

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Swapped
from umavez.core.record import Draft, Instant, Millis, Query, Record, Status
from umavez.stores.memory import MemoryStore
from umavez.testing.broken.writing import Reply


class SweepsTheRunning(MemoryStore):
    """Deletes by age instead of by expiry."""

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete claims that look abandoned, too."""
        edge = self._clock.now() - 86_400_000
        old = [digest for digest, record in self._records.items() if record.updated_at < edge]
        for digest in old:
            del self._records[digest]
        return super().sweep(limit, older_than) + len(old)


class ExpiresThePending(MemoryStore):
    """Gives every record an expiry, as a TTL on the key does."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Let what has no time to keep expire after a day."""
        return super().swap(expected, draft._replace(keep=86_400_000 if draft.keep is None else draft.keep))


class SweepsTooMuch(MemoryStore):
    """Takes the limit for advice."""

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete all that has expired, at once."""
        return super().sweep(1_000_000, 0)


class UsesTheHostClock(MemoryStore):
    """Computes leases by the clock of the machine it runs on."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        super().__init__(SYSTEM)


class ResetsTheBirth(MemoryStore):
    """Writes `created_at` with every change, as REPLACE does."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Let every write begin a new life."""
        return super().swap(expected, draft._replace(fresh=True))


class CutsPlaces(MemoryStore):
    """Lets the column decide how much of a text is kept."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Keep the first 255 characters."""
        return super().swap(
            expected, draft._replace(process_instance=draft.process_instance and draft.process_instance[:255])
        )


class DropsProgress(MemoryStore):
    """Forgets a column in the update that it has in the insert."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Leave progress out of changes."""
        return super().swap(expected, draft if expected is None else draft._replace(progress=None))


class KeepsOldColumns(MemoryStore):
    """Updates with COALESCE, so that what is absent in the draft stays as it was."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Let the old error and evidence shine through."""
        current = self._records.get(draft.key.digest)
        if current is not None and expected is not None:
            draft = draft._replace(error=draft.error or current.error, evidence=draft.evidence or current.evidence)
        return super().swap(expected, draft)


class KeepsRoundTimes(MemoryStore):
    """Keeps whole seconds, so that the reply and the record disagree."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Round what is stored, not what is answered."""
        reply = super().swap(expected, draft)
        record = self._records.get(draft.key.digest)
        if isinstance(reply, Swapped) and record is not None and record.lease_until is not None:
            rounded: Instant = record.lease_until // 1000 * 1000 + 1000
            self._records[draft.key.digest] = record._replace(lease_until=rounded)
        return reply


class FindsEveryStatus(MemoryStore):
    """Ignores a filter."""

    def find(self, query: Query) -> list[Record]:
        """Find whatever the status."""
        return super().find(Query(query.scope, query.operation, query.value, query.process_instance))


class FindsTheNewestFirst(MemoryStore):
    """Orders the wrong way round, and so limits the wrong way round too."""

    def find(self, query: Query) -> list[Record]:
        """The newest that match."""
        everything = super().find(query.__class__(query.scope, query.operation, limit=1_000_000))
        return everything[::-1][: query.limit]


class PagesByTheInstantAlone(MemoryStore):
    """Goes on after an instant, and so leaves out what else was made in it."""

    def find(self, query: Query) -> list[Record]:
        """Leave out the rest of the instant with which the last page ended."""
        if query.after is None:
            return super().find(query)
        last = b"" if query.newest_first else b"\xff" * 32
        return super().find(replace(query, after=query.after._replace(digest=last)))


class PagesFromTheStart(MemoryStore):
    """Does not know what `after` means, and so gives the first page for ever."""

    def find(self, query: Query) -> list[Record]:
        """The first page, whichever was asked for."""
        return super().find(replace(query, after=None))


class FindsAnyDigest(MemoryStore):
    """Compares whole bytes of a digest, and so finds too much for an odd number of digits."""

    def find(self, query: Query) -> list[Record]:
        """Whatever begins with the whole bytes."""
        prefix = query.digest_prefix
        whole = None if prefix is None else prefix[: len(prefix) // 2 * 2] or None
        return super().find(replace(query, digest_prefix=whole))


class FindsTheOldAmongTheYoung(MemoryStore):
    """Does not know what `newer_than` means."""

    def find(self, query: Query) -> list[Record]:
        """Whatever the age."""
        return super().find(replace(query, newer_than=None))


class FindsTheSettledAsLapsed(MemoryStore):
    """Takes whatever has no live lease for lapsed."""

    def find(self, query: Query) -> list[Record]:
        """Find the finished among the lapsed."""
        now = self._clock.now()
        found = super().find(Query(query.scope, limit=1_000_000))
        return [record for record in found if record.status is not Status.PENDING or record.lapsed(now)]
