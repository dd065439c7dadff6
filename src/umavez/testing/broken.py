"""Broken stores: each breaks one law on purpose. A suite that lets one pass proves nothing.

They show store authors which mistakes the laws are for; `ALL` pairs each with the law that must catch it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record, Settled, Status
from umavez.stores.memory import MemoryStore, kept
from umavez.testing.laws import claims, doubts, finding, keys, outcomes, swaps, sweeping, times
from umavez.testing.laws.law import Law

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
            self._records[draft.key.digest] = kept(draft, fence, created_at, now)
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


class ForgetsTheFenceAtSweep(MemoryStore):
    """Keeps the fence in the record only, so that it dies with it."""

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Forget the highest fence with the records."""
        swept = super().sweep(limit, older_than)
        self._fence = max((record.fence for record in self._records.values()), default=0)
        return swept


class KeepsTheFenceOnTakeover(MemoryStore):
    """Gives a fence at insert and never again."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Treat a takeover like a renewal."""
        return super().swap(expected, draft if expected is None else draft._replace(claims=False))


class RaisesTheFenceAlways(MemoryStore):
    """Gives a new fence with every write, so that an owner's own fence grows old while it runs."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Treat a renewal like a takeover."""
        return super().swap(expected, draft._replace(claims=True))


class Renaming(MemoryStore):
    """Compares keys by another text than the one given; what follows derive from it."""

    def named(self, text: str) -> str:
        """The text as this store compares it."""
        return text

    def _key(self, key: Key) -> Key:
        return Key(key.scope, key.operation, self.named(key.value))

    def read(self, key: Key) -> Seen:
        """Read by the other text."""
        return super().read(self._key(key))

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Swap by the other text."""
        return super().swap(expected, draft._replace(key=self._key(draft.key)))


class IgnoresCase(Renaming):
    """Compares as MariaDB does by default."""

    def named(self, text: str) -> str:
        """Without case."""
        return text.lower()


class StripsBlanks(Renaming):
    """Compares as a CHAR column does."""

    def named(self, text: str) -> str:
        """Without blanks at the end."""
        return text.rstrip(" ") or text


class CutsLongKeys(Renaming):
    """Compares what fits into the column."""

    def named(self, text: str) -> str:
        """The first 191 characters."""
        return text[:191]


class JoinsKeyParts(Renaming):
    """Makes one text of the three parts without marking where each ends."""

    def _key(self, key: Key) -> Key:
        return Key("all", "all", f"{key.scope}{key.operation}{key.value}"[-255:])


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


class FindsTheSettledAsLapsed(MemoryStore):
    """Takes whatever has no live lease for lapsed."""

    def find(self, query: Query) -> list[Record]:
        """Find the finished among the lapsed."""
        now = self._clock.now()
        found = super().find(Query(query.scope, limit=1_000_000))
        return [record for record in found if record.status is not Status.PENDING or record.lapsed(now)]


class Broken(NamedTuple):
    """A broken store and the law that must catch it."""

    store: Callable[[Clock], MemoryStore]
    law: Law


ALL: tuple[Broken, ...] = (
    Broken(IgnoresTheStamp, claims.an_overtaken_owner_changes_nothing),
    Broken(ChecksThenActs, swaps.of_rival_changes_to_one_record_exactly_one_is_done),
    Broken(InsertsWithoutALock, claims.of_rivals_for_a_free_key_exactly_one_is_granted),
    Broken(LosesEmptyOutcomes, outcomes.an_empty_outcome_is_not_an_absent_one),
    Broken(KeepsNothingAsEmpty, outcomes.an_empty_outcome_is_not_an_absent_one),
    Broken(HidesALostSwap, swaps.a_swap_that_lost_is_answered_as_lost),
    Broken(SettlesButSaysStale, outcomes.a_settled_outcome_is_replayed_text_by_text),
    Broken(ShowsNothingWhenStale, swaps.an_insert_where_something_stands_shows_it_and_writes_nothing),
    Broken(RepeatsASwap, swaps.a_swap_sent_twice_is_done_once_and_recognised),
    Broken(ResurrectsTheVanished, swaps.a_swap_of_a_record_that_vanished_says_so),
    Broken(ForgetsTheFenceAtSweep, sweeping.the_fence_rises_across_expiry_and_sweeping),
    Broken(KeepsTheFenceOnTakeover, claims.the_fence_rises_with_every_claim_and_only_then),
    Broken(RaisesTheFenceAlways, claims.the_fence_rises_with_every_claim_and_only_then),
    Broken(IgnoresCase, keys.keys_that_differ_differ),
    Broken(StripsBlanks, keys.keys_that_differ_differ),
    Broken(CutsLongKeys, keys.keys_that_differ_differ),
    Broken(JoinsKeyParts, keys.the_boundary_between_scope_operation_and_value_counts),
    Broken(SweepsTheRunning, sweeping.what_runs_is_never_swept),
    Broken(ExpiresThePending, sweeping.what_is_unknown_is_never_swept),
    Broken(SweepsTooMuch, sweeping.sweeping_keeps_to_its_limit),
    Broken(UsesTheHostClock, times.the_store_clock_ends_a_lease),
    Broken(ResetsTheBirth, times.created_at_stays_for_one_life_and_begins_anew_with_the_next),
    Broken(DropsProgress, doubts.whoever_takes_over_inherits_the_progress),
    Broken(KeepsOldColumns, outcomes.every_part_of_a_record_can_be_replaced),
    Broken(KeepsRoundTimes, times.lease_and_keep_count_from_the_moment_of_writing),
    Broken(FindsEveryStatus, finding.finding_keeps_to_the_status),
    Broken(FindsTheNewestFirst, finding.finding_gives_the_oldest_first_and_no_more_than_asked),
    Broken(FindsTheSettledAsLapsed, finding.finding_tells_the_lapsed_from_the_living),
)
