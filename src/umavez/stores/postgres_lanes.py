"""Lanes of the PostgreSQL store: swaps over a connection, one by one or many in one statement."""

from __future__ import annotations

from collections.abc import Sequence

from umavez.clock import Clock
from umavez.core.flow import Stale, Swap, Swapped
from umavez.errors import StoreUnavailable
from umavez.stores import postgres_sql as sql
from umavez.stores.postgres_batch import batch, replies
from umavez.stores.postgres_errors import failed
from umavez.stores.postgres_link import AsyncLink, Link, Row
from umavez.stores.postgres_values import inserting, reply_of, updating

ROUNDS = 16
"""How often a swap is repeated when rivals commit between its snapshot and its write."""


class PostgresLane:
    """Swaps over one link; see grouping.Lane."""

    def __init__(self, conninfo: str, clock: Clock) -> None:
        self.link = Link(conninfo)
        self._clock = clock

    def send(self, swaps: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        """One statement for one swap, one for many."""
        return (self._one(swaps[0]),) if len(swaps) == 1 else self._many(swaps)

    def _one(self, swap: Swap) -> Swapped | Stale:
        text, values = statement(swap, self._clock.offset)
        for _ in range(ROUNDS):
            for row in self.link.rows(text, values, swap.draft.key):
                return reply_of(swap.draft.key, row)
        raise overtaken()

    def _many(self, swaps: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        answers = replies(swaps, self.link.rows(sql.BATCH, packed(swaps, self._clock.offset)))
        return [answer or self._one(swap) for swap, answer in zip(swaps, answers, strict=True)]

    def close(self) -> None:
        """Close the connection."""
        self.link.close()


class AsyncPostgresLane:
    """Swaps over one link, awaited; see grouping.AsyncLane."""

    def __init__(self, conninfo: str, clock: Clock) -> None:
        self.link = AsyncLink(conninfo)
        self._clock = clock

    async def send(self, swaps: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        """One statement for one swap, one for many."""
        return (await self._one(swaps[0]),) if len(swaps) == 1 else await self._many(swaps)

    async def _one(self, swap: Swap) -> Swapped | Stale:
        text, values = statement(swap, self._clock.offset)
        for _ in range(ROUNDS):
            for row in await self.link.rows(text, values, swap.draft.key):
                return reply_of(swap.draft.key, row)
        raise overtaken()

    async def _many(self, swaps: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        answers = replies(swaps, await self.link.rows(sql.BATCH, packed(swaps, self._clock.offset)))
        return [answer or await self._one(swap) for swap, answer in zip(swaps, answers, strict=True)]

    async def close(self) -> None:
        """Close the connection."""
        await self.link.close()


def statement(swap: Swap, offset: int) -> tuple[str, Row]:
    """The statement of a single swap, and its parameters."""
    if swap.expected is None:
        return sql.INSERT, inserting(swap, offset)
    return sql.UPDATE, updating(swap, offset)


def packed(swaps: Sequence[Swap], offset: int) -> Row:
    """The parameters of a batch. Raises StoreUnavailable when a text of it cannot be sent."""
    try:
        return tuple(batch(swaps, offset))
    except UnicodeEncodeError as error:
        # Only the one who brought it is to blame: sent again one by one, it fails alone.
        raise failed(error, lost=False) from error


def overtaken() -> StoreUnavailable:
    """Rivals won every round."""
    return StoreUnavailable("Others kept changing the record while it was written; try again.")
