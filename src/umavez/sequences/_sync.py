# Written by tools/sync.py from src/umavez/sequences/_async.py: change that, then run `make format`.
"""Sequences: numbers on a caller's connection. See `umavez.sequences`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from umavez.concurrency.after_fork import reset_after_fork
from umavez.concurrency.locks import OwnLock
from umavez.concurrency.unbroken import to_its_end
from umavez.sequences import administration as keeping
from umavez.sequences import flows
from umavez.sequences.administration import Voided
from umavez.sequences.flows import Series
from umavez.sequences.names import checked
from umavez.sequences.ranges import ENDLESS, Range
from umavez.sequences.version import NAME, PACKAGE, VERSION
from umavez.sql.connection import Dialect, Sql, close
from umavez.sql.flow import carry, joined
from umavez.sql.migration import migration

FROM_ONE = (Range(1),)


class Sequences:
    """Gapless numbers per organisation and series, in the caller's transaction. Holds nothing; share it freely."""

    def next_number(self, connection: Any, organisation: str, series: str, *, key: str | None = None) -> int:
        """The next number, taken in the open transaction: a rollback gives it back, so that no hole is left.

        With `key` (an operation's own) a repeat gets the same number again. Others who want a number of this series
        wait until the transaction ends. Raises SeriesUnknown, NumbersExhausted, NumberVoided, and ConfigurationError
        on a connection that would commit at once.
        """
        sql = Sql.on(connection)
        name = checked(organisation, series, key)
        return carry(joined(sql, flows.next_number(sql.dialect, name, key)), sql)

    def reserve(self, connection: Any, organisation: str, series: str, count: int) -> range:
        """Up to `count` numbers in a row, at least one; those not used are gaps."""
        sql = Sql.on(connection)
        return carry(joined(sql, flows.reserve(sql.dialect, checked(organisation, series), max(1, count))), sql)

    def define(self, connection: Any, organisation: str, series: str, *, ranges: Sequence[Range] = FROM_ONE) -> bool:
        """Create a series that takes its numbers from `ranges`; False if it is there already."""
        sql = Sql.on(connection)
        return carry(joined(sql, keeping.define(sql.dialect, checked(organisation, series), ranges)), sql)

    def open_range(self, connection: Any, organisation: str, series: str, first: int, last: int = ENDLESS) -> None:
        """Let the series go on with the numbers from `first` to `last`. Raises RangeTaken, RangeExists."""
        sql = Sql.on(connection)
        flow = keeping.add_range(sql.dialect, checked(organisation, series), Range(first, last), "OPEN", None)
        carry(joined(sql, flow), sql)

    def block_range(
        self, connection: Any, organisation: str, series: str, first: int, last: int, *, reason: str
    ) -> None:
        """Never give the numbers from `first` to `last`. Raises RangeTaken for numbers that were given."""
        sql = Sql.on(connection)
        flow = keeping.add_range(sql.dialect, checked(organisation, series), Range(first, last), "BLOCKED", reason)
        carry(joined(sql, flow), sql)

    def void(self, connection: Any, organisation: str, series: str, number: int, *, by: str, reason: str) -> bool:
        """Record that a given number will not be used, and who says so; False if that was recorded before."""
        sql = Sql.on(connection)
        return carry(joined(sql, keeping.void(sql.dialect, checked(organisation, series), number, by, reason)), sql)

    def voided(self, connection: Any, organisation: str, series: str) -> list[Voided]:
        """The voided numbers with their reasons."""
        return carry(keeping.voided(checked(organisation, series)), Sql.on(connection))

    def migrate(self, connection: Any) -> str:
        """Create or upgrade the tables of sequences in this database; commit afterwards."""
        sql = Sql.on(connection)
        return carry(migration(PACKAGE, NAME, VERSION, sql.dialect), sql)


class UniqueNumbers:
    """Unique numbers of one series, fast: taken from blocks that are reserved ahead. A crash leaves a gap.

    `connect` opens a connection of its own for each block, which is committed and closed. Safe for
    threads, for the tasks of one loop, and in forked processes, each of which reserves for itself.
    """

    def __init__(self, connect: Callable[[], Any], organisation: str, series: str, *, block: int = 100) -> None:
        self._connect = connect
        self._series: Series = checked(organisation, series)
        self._block = block
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Have no numbers: those that were reserved before a fork are the parent's, and so is its lock."""
        self._left: Iterator[int] = iter(())
        self._lock = OwnLock()

    def next_number(self) -> int:
        """A number that nobody else gets. Raises SeriesUnknown, NumbersExhausted."""
        with self._lock:
            number = next(self._left, None)
            if number is None:
                self._left = iter(self._reserved())
                number = next(self._left)
            return number

    def number_for(self, connection: Any, key: str) -> int:
        """A number kept with `key` in the open transaction; a repeat gets the same. Raises NumberVoided."""
        checked(*self._series, key)
        sql = Sql.on(connection)
        if sql.dialect is Dialect.SQLITE:
            # One writer at a time: reserving a block beside the caller's transaction would wait for it for ever.
            return carry(joined(sql, flows.next_number(sql.dialect, self._series, key)), sql)
        held = carry(joined(sql, flows.number_of(self._series, key)), sql)
        if held is not None:
            return held
        number = self.next_number()
        return carry(keeping.adopt(sql.dialect, self._series, number, key), sql)

    def _reserved(self) -> range:
        connection = self._connect()
        try:
            numbers = Sequences().reserve(connection, *self._series, self._block)
            to_its_end(connection.commit())
            return numbers
        finally:
            close(connection)
