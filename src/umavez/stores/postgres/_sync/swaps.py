# Written by tools/sync.py from src/umavez/stores/postgres/_async/swaps.py: change that, then run `make format`.
"""Lanes of the PostgreSQL store: swaps over a connection, one by one or many in one statement."""

from __future__ import annotations

from collections.abc import Sequence

from umavez.clock import Clock
from umavez.concurrency.batching import half_answered
from umavez.core.flow import Stale, Swap, Swapped
from umavez.errors import StoreError
from umavez.stores.keeping import Keeping, any_telling, bare
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres._sync.connection import PostgresConnection
from umavez.stores.postgres.arrays import packed, replies
from umavez.stores.postgres.errors import overtaken
from umavez.stores.postgres.url import Target
from umavez.stores.postgres.values import Values, parameters, plainly, reply_of, swapping

ROUNDS = 16
"""How often a swap is repeated when rivals commit between its snapshot and its write."""


class PostgresLane:
    """Swaps over one connection; see `Lane`."""

    def __init__(self, target: Target, clock: Clock, keeping: Keeping) -> None:
        self.connection = PostgresConnection(target)
        self._clock = clock
        self._keeping = keeping

    def send(self, swaps: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        """One statement for one swap, one for many."""
        if len(swaps) == 1:
            return (self._one(swaps[0]),)
        tells = any_telling(swaps)
        if tells and not self._keeps():
            swaps, tells = [bare(swap) for swap in swaps], False
        return self._many(swaps, tells=tells)

    def _keeps(self) -> bool:
        """Whether there are tables for events, asked when the first is to be kept."""
        there = self._keeping.there
        if there is None:
            ((there,),) = self.connection.rows(sql.KEEPS, [])
            self._keeping.learn(there=there)
        return there

    def _one(self, swap: Swap) -> Swapped | Stale:
        draft = swap.draft
        if draft.event is None and draft.origin is None:
            text, values = plainly(swap, self._clock.offset)
        else:
            text, values = self._telling(swap)
        for _ in range(ROUNDS):
            for row in self.connection.rows(text, values, draft.key):
                return reply_of(draft.key, row)
            text = sql.UPDATE if text is sql.UPDATE_PLAIN else text  # it says nothing of what stands there
        raise overtaken()

    def _telling(self, swap: Swap) -> tuple[str, Values]:
        """The statement of a swap that has more to keep than its record, where there is a place to keep it."""
        text, words = swapping(swap if self._keeps() else bare(swap), self._clock.offset)
        return text, parameters(words, swap.draft.key)

    def _many(self, swaps: Sequence[Swap], *, tells: bool) -> Sequence[Swapped | Stale]:
        text, values = packed(swaps, self._clock.offset, tells=tells)
        answers = replies(swaps, self.connection.rows(text, parameters(values)))
        try:
            return [answer or self._one(swap) for swap, answer in zip(swaps, answers, strict=True)]
        except StoreError as error:
            if not any(answers):
                raise
            raise half_answered(error) from error

    def forget(self) -> None:
        """See Lane.forget."""
        self.connection.drop()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
