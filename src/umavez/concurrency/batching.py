"""Batching: who is sent together, who is sent alone, and what a failed batch's swaps are answered.

Without I/O and without waiting: `group_commit.py` asks here, under its own lock or on its own loop.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

from umavez.core.flow import Stale, Swap, Swapped
from umavez.errors import NotStorable, OperationInProgress, StoreError, StoreUnavailable, StoreUncertain

Reply = Swapped | Stale
Answer = Reply | Exception
Q = TypeVar("Q")
INTERRUPTED = "The batch that carried this write was interrupted; ask again to learn whether it stands."
COMPANY = "Another write that went along cannot be kept; nothing was written, try again."
HALF = "A part of the batch was written before this error; ask again to learn whether this write is in it."
SHUNNED_FOR = 5.0
"""Seconds that a key is sent alone after a write waited for its lock in vain; each further one begins them anew."""
SHUNNED = 10_000
"""Most keys that are remembered so."""


class Shunned:
    """Keys whose lock was waited for in vain a moment ago, and the lanes on which one of them is under way.

    Nearly always there are none, and every swap comes by: ask `keys` and `lanes` before calling anything here.
    """

    __slots__ = ("_most", "keys", "lanes")

    def __init__(self, lanes: int) -> None:
        self.keys: dict[bytes, float] = {}
        """Until when each is shunned; those whose time is over may still be here."""
        self.lanes: set[int] = set()
        self._most = max(lanes - 1, 1)

    def __contains__(self, digest: bytes) -> bool:
        return self.keys.get(digest, 0.0) > time.monotonic()

    def full(self) -> bool:
        """Whether one lane more would leave none to the others."""
        return len(self.lanes) >= self._most

    def admits(self, digest: bytes, lane: object) -> bool:
        """Whether a swap of this key may go on `lane` now, by itself; it is counted until the lane `leave`s."""
        if digest not in self:
            return True
        if self.full():
            return False
        self.lanes.add(id(lane))
        return True

    def leave(self, lane: object) -> None:
        """The lane is free again."""
        self.lanes.discard(id(lane))

    def note(self, swap: Swap, answer: object) -> None:
        """Remember the key of a swap that was sent alone and waited in vain."""
        if not (isinstance(answer, OperationInProgress) or (isinstance(answer, StoreError) and answer.blocked)):
            return
        now = time.monotonic()
        if len(self.keys) >= SHUNNED:
            self.keys = {digest: until for digest, until in self.keys.items() if until > now}
        if len(self.keys) < SHUNNED:
            self.keys[swap.draft.key.digest] = now + SHUNNED_FOR


class Resent:
    """The answers to the swaps of a failed batch, sent one by one."""

    def __init__(self, first: Exception, shunned: Shunned) -> None:
        if isinstance(first, NotStorable):
            first = StoreUnavailable(COMPANY)
        # Any other error that is not the store's own tells nothing about what was written.
        self._first = first if isinstance(first, StoreError) else StoreUncertain(INTERRUPTED)
        self._shunned = shunned
        self._failures = 0
        self.answers: list[Answer] = []

    def add(self, swap: Swap, answer: Answer) -> None:
        """Keep an answer. Where the batch may have been done, a failed resend must not say that nothing was written."""
        self._shunned.note(swap, answer)
        if not isinstance(answer, StoreError) or answer.blocked:
            self._failures = 0
            self.answers.append(answer)
            return
        self._failures += 2 if answer.waited else 1
        self.answers.append(self._first if self._first.may_have_happened else answer)

    def given_up(self) -> StoreError | None:
        """The batch's error where asking on is in vain: each swap would wait in turn for a store that is away."""
        return self._first if self._first.waited or self._failures >= 2 else None


def half_answered(error: StoreError) -> StoreUncertain:
    """`error` as it is told of a batch that was committed before: nobody in it may hear that nothing was written."""
    return StoreUncertain(f"{HALF} ({error})", waited=error.waited)


def in_vain(answer: object) -> bool:
    """Whether a whole time-out went by for the store's sake, so that everybody in line would wait as long."""
    return isinstance(answer, StoreError) and answer.waited and not answer.blocked


def next_of(
    queue: list[Q], digests: Sequence[bytes], most: int, shunned: Shunned, lane: object
) -> tuple[list[Q], list[Q]]:
    """The next batch for `lane` and what is left; no batch where all who wait have to wait for another lane.

    Whoever comes first and is shunned goes alone, if it may; the others go together.
    """
    if not shunned.keys or not queue:
        return batch_of(queue, digests, most)
    if digests[0] in shunned and shunned.admits(digests[0], lane):
        return queue[:1], queue[1:]
    free = [number for number, digest in enumerate(digests) if digest not in shunned]
    batch, _ = batch_of([queue[number] for number in free], [digests[number] for number in free], most)
    gone = set(map(id, batch))
    return batch, [entry for entry in queue if id(entry) not in gone]


def batch_of(queue: list[Q], digests: Sequence[bytes], most: int) -> tuple[list[Q], list[Q]]:
    """The next batch and what is left: at most `most`, and no key twice, so that each swap sees the one before it.

    `digests` are those of the queue's keys.
    """
    if len(queue) <= most and len(set(digests)) == len(queue):
        return queue, []
    batch: dict[bytes, Q] = {}
    left: list[Q] = []
    for entry, digest in zip(queue, digests, strict=True):
        if digest in batch or len(batch) >= most:
            left.append(entry)
        else:
            batch[digest] = entry
    return list(batch.values()), left
