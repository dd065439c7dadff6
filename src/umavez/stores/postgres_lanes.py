"""Lanes of the PostgreSQL store: swaps over a connection, one by one or many in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from umavez.clock import Clock
from umavez.core.flow import Stale, Swap, Swapped
from umavez.errors import StoreUnavailable
from umavez.stores import postgres_sql as sql
from umavez.stores.postgres_link import AsyncLink, Link, Row
from umavez.stores.postgres_values import batch, inserting, reply_of, updating

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
                return reply_of(swap, row)
        raise overtaken()

    def _many(self, swaps: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        answered = by_digest(self.link.rows(sql.BATCH, batch(swaps, self._clock.offset)))
        rows = [answered.get(swap.draft.key.digest) for swap in swaps]
        return [
            reply_of(swap, row) if row is not None else self._one(swap) for swap, row in zip(swaps, rows, strict=True)
        ]

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
                return reply_of(swap, row)
        raise overtaken()

    async def _many(self, swaps: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        answered = by_digest(await self.link.rows(sql.BATCH, batch(swaps, self._clock.offset)))
        rows = [answered.get(swap.draft.key.digest) for swap in swaps]
        return [
            reply_of(swap, row) if row is not None else await self._one(swap)
            for swap, row in zip(swaps, rows, strict=True)
        ]

    async def close(self) -> None:
        """Close the connection."""
        await self.link.close()


def statement(swap: Swap, offset: int) -> tuple[str, Row]:
    """The statement of a single swap, and its parameters."""
    if swap.expected is None:
        return sql.INSERT, inserting(swap, offset)
    return sql.UPDATE, updating(swap, offset)


def by_digest(rows: Sequence[Row]) -> Mapping[bytes, Row]:
    """The answers of a batch, each under its key."""
    return {row[-1]: row for row in rows}


def overtaken() -> StoreUnavailable:
    """Rivals won every round."""
    return StoreUnavailable("Others kept changing the record while it was written; try again.")
