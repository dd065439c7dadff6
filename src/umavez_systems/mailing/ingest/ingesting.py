"""Ingesting: a stored list becomes entries, part by part, from wherever the last commit stands."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, suppress
from threading import Event
from typing import TypeVar

from umavez_systems.database import Row
from umavez_systems.mailing.ingest.dialect import Dialect
from umavez_systems.mailing.ingest.entries import Batch
from umavez_systems.mailing.ingest.reading import BLOCK, runs
from umavez_systems.mailing.ingest.sorting import PART, Moved, SortedList
from umavez_systems.mailing.ports import Storage
from umavez_systems.mailing.sending.holding import Holding

T = TypeVar("T")
WORTH = 3.0
"""How many times as long as sorting a list may be written: whoever goes on after a slice sorts it again."""

PATIENCE = 60.0
"""Seconds that a part waits for the one before it."""


class Unreadable(Exception):
    """The stored list cannot be read; trying again would not help."""


def ingest(
    holding: Holding,
    storage: Storage,
    until: float,
    told: Callable[[int], None],
    *,
    size: int = BLOCK,
    part: int = PART,
    stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Read and write until the end (True), or until the moment `until` of the monotonic clock, or somebody's wish.

    Raises ClaimLost, Unreadable, Leak.
    """
    row = holding.row
    dialect = Dialect.of(row["dialeto"])
    began = time.monotonic()
    ordered = _sorted(storage, row, dialect, size)
    until = max(until, time.monotonic() + WORTH * (time.monotonic() - began))
    try:
        with (
            ordered,
            closing(_ahead(_batches(holding, ordered, part))) as batches,
            closing(_written(holding, batches)) as written,
        ):
            for found, lines in written:
                row = holding.row = {**row, **found}
                told(lines)
                if stopped() or row["pedido"] is not None or time.monotonic() >= until:
                    return False
    except Moved as error:
        raise Unreadable("O arquivo da lista mudou depois que a leitura começou.") from error
    holding.close_list(dialect.blank + ordered.lines, dialect.blank + ordered.blank)
    return True


def _sorted(storage: Storage, row: Row, dialect: Dialect, size: int) -> SortedList:
    try:
        with (
            storage.read(row["storage_url"], dialect.start) as stream,
            closing(runs(stream, dialect, dialect.line, size)) as found,
        ):
            return SortedList(found, row["tamanho"])
    except FileNotFoundError as error:
        raise Unreadable(f"O arquivo da lista não está mais no armazenamento: {error}.") from error


def _batches(holding: Holding, ordered: SortedList, part: int) -> Iterator[tuple[Batch, int, float]]:
    """What is left of the list, ready to be written: the entries, how many lines they are, how much is done then."""
    read = holding.row["linhas"]
    for one in ordered.parts(read, part):
        read += one.lines
        yield holding.batch(one.rows), one.lines, read / max(1, ordered.lines)


class _Abandoned(Exception):
    """The reading stopped before this part: nothing of it is kept."""


class _Part:
    """A part on its way: copied in by a thread, kept when its turn comes."""

    def __init__(self, holding: Holding, hand: Executor, batch: Batch, lines: int, done: float) -> None:
        self.lines = lines
        self._decided = Event()
        self._kept = False
        self._found = hand.submit(holding.add, batch, lines, done, self._turn)

    def _turn(self) -> None:
        if not self._decided.wait(PATIENCE) or not self._kept:
            raise _Abandoned

    def keep(self) -> Row:
        """The mailing's row, now that this part is in it. Raises what stood in the way."""
        self._kept = True
        self._decided.set()
        return self._found.result()

    def drop(self) -> None:
        """Keep nothing of it."""
        self._decided.set()
        with suppress(Exception):
            self._found.result()


def _written(holding: Holding, batches: Iterator[tuple[Batch, int, float]]) -> Generator[tuple[Row, int], None, None]:
    """Parts that are kept, each after the one before; while one is kept, the next is copied in already."""
    waiting: deque[_Part] = deque()
    with ThreadPoolExecutor(holding.lanes, thread_name_prefix="umavez-lane") as hands:
        try:
            for one in batches:
                waiting.append(_Part(holding, hands, *one))
                if len(waiting) >= holding.lanes:
                    first = waiting.popleft()
                    yield first.keep(), first.lines
            while waiting:
                first = waiting.popleft()
                yield first.keep(), first.lines
        finally:
            for part in waiting:
                part.drop()


def _ahead(found: Iterator[T]) -> Generator[T, None, None]:
    """The same; while one is used, the next is made."""
    with ThreadPoolExecutor(1, thread_name_prefix="umavez-ahead") as hand:
        following = hand.submit(next, found, None)
        while (one := following.result()) is not None:
            following = hand.submit(next, found, None)
            yield one
