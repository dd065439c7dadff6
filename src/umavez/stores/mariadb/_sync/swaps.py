# Written by tools/sync.py from src/umavez/stores/mariadb/_async/swaps.py: change that, then run `make format`.
"""Lanes of the MariaDB store: swaps over a connection, one by one or many in one statement."""

from __future__ import annotations

from collections.abc import Sequence

from umavez.clock import Clock
from umavez.concurrency.batching import half_answered
from umavez.core.flow import Stale, Swap
from umavez.errors import StoreError
from umavez.stores.keeping import Keeping, any_telling, bare
from umavez.stores.mariadb._sync.connection import MariadbConnection
from umavez.stores.mariadb.batch import Batch
from umavez.stores.mariadb.errors import ROUNDS, stubborn
from umavez.stores.mariadb.events import KEEPS
from umavez.stores.mariadb.statements import Reply, Texts, answer, reading, seen, swapping, texts_at
from umavez.stores.mariadb.url import Address


class MariadbLane:
    """Swaps over one connection; see `Lane`."""

    def __init__(self, address: Address, clock: Clock, keeping: Keeping) -> None:
        self.connection = MariadbConnection(address)
        self._clock = clock
        self._keeping = keeping

    def send(self, batch: Sequence[Swap]) -> Sequence[Reply]:
        """One statement for one swap, one for many; a swap with an event needs a transaction, as many do."""
        texts = texts_at(self._clock.offset)
        eventful = any_telling(batch)
        if eventful and not self._keeps():
            batch, eventful = [bare(swap) for swap in batch], False
        if len(batch) == 1 and (not eventful or batch[0].expected is None):
            return (self._alone(texts, batch[0]),)
        together = Batch(batch, texts)
        answers = together.answers(self.connection.run(together.statement()))
        try:
            return [reply or self._look(texts, swap) for swap, reply in zip(batch, answers, strict=True)]
        except StoreError as error:
            if not any(answers):
                raise
            raise half_answered(error) from error

    def _keeps(self) -> bool:
        """Whether there are tables for events, asked when the first is to be kept."""
        there = self._keeping.there
        if there is None:
            (((found,),),) = self.connection.run(KEEPS)
            there = self._keeping.learn(there=bool(found))
        return there

    def _alone(self, texts: Texts, swap: Swap) -> Reply:
        for round_ in range(ROUNDS):
            (rows,) = self.connection.run(swapping(texts, swap, again=round_ > 0))
            reply = answer(swap, rows)
            if reply is not None:
                return reply
        raise stubborn()

    def _look(self, texts: Texts, swap: Swap) -> Stale:
        """A swap that was not done, and what stands in its way."""
        key = swap.draft.key
        (rows,) = self.connection.run(reading(texts, key))
        return Stale(*seen(key, rows))

    def forget(self) -> None:
        """See Lane.forget; the connection notices by itself that its loop is over."""

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
