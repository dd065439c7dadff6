"""AsyncSequences: numbers on a caller's connection. See `umavez.sequences`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from umavez.concurrency.after_fork import reset_after_fork
from umavez.concurrency.locks import AsyncOwnLock
from umavez.concurrency.unbroken import async_to_its_end
from umavez.sequences import administration as keeping
from umavez.sequences import flows
from umavez.sequences.administration import Voided
from umavez.sequences.flows import Series
from umavez.sequences.names import checked
from umavez.sequences.ranges import ENDLESS, Range
from umavez.sequences.version import NAME, PACKAGE, VERSION
from umavez.sql.connection import AsyncSql, Dialect, async_close
from umavez.sql.flow import async_carry, joined
from umavez.sql.migration import migration

FROM_ONE = (Range(1),)


class AsyncSequences:
    """Gapless numbers per organisation and series, in the caller's transaction. Holds nothing; share it freely."""

    async def next_number(self, connection: Any, organisation: str, series: str, *, key: str | None = None) -> int:
        """The next number, taken in the open transaction: a rollback gives it back, so that no hole is left.

        With `key` (an operation's own) a repeat gets the same number again. Others who want a number of this series
        wait until the transaction ends. Raises SeriesUnknown, NumbersExhausted, NumberVoided, and ConfigurationError
        on a connection that would commit at once.
        """
        sql = await AsyncSql.on(connection)
        name = checked(organisation, series, key)
        return await async_carry(joined(sql, flows.next_number(sql.dialect, name, key)), sql)

    async def reserve(self, connection: Any, organisation: str, series: str, count: int) -> range:
        """Up to `count` numbers in a row, at least one; those not used are gaps."""
        sql = await AsyncSql.on(connection)
        return await async_carry(
            joined(sql, flows.reserve(sql.dialect, checked(organisation, series), max(1, count))), sql
        )

    async def define(
        self, connection: Any, organisation: str, series: str, *, ranges: Sequence[Range] = FROM_ONE
    ) -> bool:
        """Create a series that takes its numbers from `ranges`; False if it is there already."""
        sql = await AsyncSql.on(connection)
        return await async_carry(joined(sql, keeping.define(sql.dialect, checked(organisation, series), ranges)), sql)

    async def open_range(
        self, connection: Any, organisation: str, series: str, first: int, last: int = ENDLESS
    ) -> None:
        """Let the series go on with the numbers from `first` to `last`. Raises RangeTaken, RangeExists."""
        sql = await AsyncSql.on(connection)
        flow = keeping.add_range(sql.dialect, checked(organisation, series), Range(first, last), "OPEN", None)
        await async_carry(joined(sql, flow), sql)

    async def block_range(
        self, connection: Any, organisation: str, series: str, first: int, last: int, *, reason: str
    ) -> None:
        """Never give the numbers from `first` to `last`. Raises RangeTaken for numbers that were given."""
        sql = await AsyncSql.on(connection)
        flow = keeping.add_range(sql.dialect, checked(organisation, series), Range(first, last), "BLOCKED", reason)
        await async_carry(joined(sql, flow), sql)

    async def void(self, connection: Any, organisation: str, series: str, number: int, *, by: str, reason: str) -> bool:
        """Record that a given number will not be used, and who says so; False if that was recorded before."""
        sql = await AsyncSql.on(connection)
        return await async_carry(
            joined(sql, keeping.void(sql.dialect, checked(organisation, series), number, by, reason)), sql
        )

    async def voided(self, connection: Any, organisation: str, series: str) -> list[Voided]:
        """The voided numbers with their reasons."""
        return await async_carry(keeping.voided(checked(organisation, series)), await AsyncSql.on(connection))

    async def migrate(self, connection: Any) -> str:
        """Create or upgrade the tables of sequences in this database; commit afterwards."""
        sql = await AsyncSql.on(connection)
        return await async_carry(migration(PACKAGE, NAME, VERSION, sql.dialect), sql)


class AsyncUniqueNumbers:
    """Unique numbers of one series, fast: taken from blocks that are reserved ahead. A crash leaves a gap.

    `connect` opens a connection of its own for each block, which is committed and closed. Safe for
    threads, for the tasks of one loop, and in forked processes, each of which reserves for itself.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Any]], organisation: str, series: str, *, block: int = 100
    ) -> None:
        self._connect = connect
        self._series: Series = checked(organisation, series)
        self._block = block
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Have no numbers: those that were reserved before a fork are the parent's, and so is its lock."""
        self._left: Iterator[int] = iter(())
        self._lock = AsyncOwnLock()

    async def next_number(self) -> int:
        """A number that nobody else gets. Raises SeriesUnknown, NumbersExhausted."""
        async with self._lock:
            number = next(self._left, None)
            if number is None:
                self._left = iter(await self._reserved())
                number = next(self._left)
            return number

    async def number_for(self, connection: Any, key: str) -> int:
        """A number kept with `key` in the open transaction; a repeat gets the same. Raises NumberVoided."""
        checked(*self._series, key)
        sql = await AsyncSql.on(connection)
        if sql.dialect is Dialect.SQLITE:
            # One writer at a time: reserving a block beside the caller's transaction would wait for it for ever.
            return await async_carry(joined(sql, flows.next_number(sql.dialect, self._series, key)), sql)
        held = await async_carry(joined(sql, flows.number_of(self._series, key)), sql)
        if held is not None:
            return held
        number = await self.next_number()
        return await async_carry(keeping.adopt(sql.dialect, self._series, number, key), sql)

    async def _reserved(self) -> range:
        connection = await self._connect()
        try:
            numbers = await AsyncSequences().reserve(connection, *self._series, self._block)
            await async_to_its_end(connection.commit())
            return numbers
        finally:
            await async_close(connection)
