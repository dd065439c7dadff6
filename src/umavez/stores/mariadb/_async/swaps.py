"""Lanes of the MariaDB store: swaps over a connection, one by one or many in one statement."""

from __future__ import annotations

from collections.abc import Sequence

from umavez.clock import Clock
from umavez.concurrency.batching import half_answered
from umavez.core.flow import Stale, Swap
from umavez.errors import StoreError
from umavez.stores.keeping import Keeping, any_telling, bare
from umavez.stores.mariadb._async.connection import AsyncMariadbConnection
from umavez.stores.mariadb.batch import Batch
from umavez.stores.mariadb.errors import ROUNDS, stubborn
from umavez.stores.mariadb.events import KEEPS
from umavez.stores.mariadb.statements import Reply, Texts, answer, reading, seen, swapping, texts_at
from umavez.stores.mariadb.url import Address


class AsyncMariadbLane:
    """Swaps over one connection; see `AsyncLane`."""

    def __init__(self, address: Address, clock: Clock, keeping: Keeping) -> None:
        self.connection = AsyncMariadbConnection(address)
        self._clock = clock
        self._keeping = keeping

    async def send(self, batch: Sequence[Swap]) -> Sequence[Reply]:
        """One statement for one swap, one for many; a swap with an event needs a transaction, as many do."""
        texts = texts_at(self._clock.offset)
        eventful = any_telling(batch)
        if eventful and not await self._keeps():
            batch, eventful = [bare(swap) for swap in batch], False
        if len(batch) == 1 and (not eventful or batch[0].expected is None):
            return (await self._alone(texts, batch[0]),)
        together = Batch(batch, texts)
        answers = together.answers(await self.connection.run(together.statement()))
        try:
            return [reply or await self._look(texts, swap) for swap, reply in zip(batch, answers, strict=True)]
        except StoreError as error:
            if not any(answers):
                raise
            raise half_answered(error) from error

    async def _keeps(self) -> bool:
        """Whether there are tables for events, asked when the first is to be kept."""
        there = self._keeping.there
        if there is None:
            (((found,),),) = await self.connection.run(KEEPS)
            there = self._keeping.learn(there=bool(found))
        return there

    async def _alone(self, texts: Texts, swap: Swap) -> Reply:
        for round_ in range(ROUNDS):
            (rows,) = await self.connection.run(swapping(texts, swap, again=round_ > 0))
            reply = answer(swap, rows)
            if reply is not None:
                return reply
        raise stubborn()

    async def _look(self, texts: Texts, swap: Swap) -> Stale:
        """A swap that was not done, and what stands in its way."""
        key = swap.draft.key
        (rows,) = await self.connection.run(reading(texts, key))
        return Stale(*seen(key, rows))

    def forget(self) -> None:
        """See AsyncLane.forget; the connection notices by itself that its loop is over."""

    async def close(self) -> None:
        """Close the connection."""
        await self.connection.close()
