"""Database: connections of the relay's and the consumers' own, awaited, on SQLite, PostgreSQL and MariaDB.

A connection that has met an error is dropped, never used again: whatever was begun on it is rolled back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from umavez.clock import SYSTEM, Clock
from umavez.errors import ConfigurationError, StoreError, StoreUnavailable, StoreUncertain
from umavez.messaging.version import PACKAGE, VERSION
from umavez.sql import Dialect
from umavez.sql_flow import Runner, SqlFlow, carry_async, migration
from umavez.stores import without_password

T = TypeVar("T")


class Line(NamedTuple):
    """An open connection: how to run statements on it, and how to close it.

    `whole` carries out a flow in one go, transaction and all, where statements must not be awaited one by one.
    """

    sql: Runner
    close: Callable[[], Awaitable[None]]
    whole: Callable[[SqlFlow[Any]], Awaitable[Any]] | None = None


_DRIVERS = {
    "sqlite": (Dialect.SQLITE, "umavez.messaging.lines_sqlite", ""),
    "postgresql": (Dialect.POSTGRES, "umavez.messaging.lines_postgres", "postgres"),
    "postgres": (Dialect.POSTGRES, "umavez.messaging.lines_postgres", "postgres"),
    "mariadb": (Dialect.MARIADB, "umavez.messaging.lines_mariadb", "mariadb"),
    "mysql": (Dialect.MARIADB, "umavez.messaging.lines_mariadb", "mariadb"),
}


class Database:
    """Runs flows on connections it keeps; made from the same URL as the store. Used by the tasks of one loop."""

    def __init__(self, url: str, *, clock: Clock = SYSTEM) -> None:
        scheme = url.partition(":")[0]
        if scheme not in _DRIVERS:
            raise ConfigurationError(
                f"{without_password(url)!r} cannot hold messages; use sqlite:///file, postgresql://… or mariadb://…."
            )
        self.dialect, module, extra = _DRIVERS[scheme]
        try:
            driver = import_module(module)
        except ModuleNotFoundError as missing:
            raise ConfigurationError(
                f"{scheme} needs {missing.name}, which is not installed; run: pip install 'umavez[{extra}]'."
            ) from missing
        self.clock = clock
        self._open: Callable[[], Awaitable[Line]] = driver.opener(url)
        self._meaning: Callable[[Exception], StoreError | None] = driver.meaning
        self._spare: list[Line] = []

    async def run(self, flow: SqlFlow[T], *, atomic: bool = True) -> T:
        """Carry out `flow` in a transaction of its own; not `atomic` saves the BEGIN and COMMIT of a single statement.

        Raises StoreUnavailable when nothing was written, StoreUncertain when the answer was lost.
        """
        async with self._line() as line:
            if line.whole is not None:
                result: T = await line.whole(flow)
                return result
            if not atomic:
                return await carry_async(flow, line.sql)
            await line.sql.count("BEGIN")
            result = await carry_async(flow, line.sql)
            await self._commit(line)
            return result

    async def _commit(self, line: Line) -> None:
        try:
            await line.sql.count("COMMIT")
        except Exception as error:
            raise StoreUncertain("The database did not confirm the commit; what was written may stand.") from error

    @asynccontextmanager
    async def _line(self) -> AsyncIterator[Line]:
        line = self._spare.pop() if self._spare else await self._opened()
        try:
            yield line
        except BaseException as error:  # a cancelled task too: its statement may still be running on that line
            await _closed(line)
            meaning = self._meaning(error) if isinstance(error, Exception) else None
            if meaning is None:
                raise
            # The other lines of a server that went away are as dead as this one.
            await self.close()
            raise meaning from error
        self._spare.append(line)

    async def _opened(self) -> Line:
        try:
            return await self._open()
        except Exception as error:
            if self._meaning(error) is None:
                raise
            raise StoreUnavailable("The database of the messages cannot be reached; check the URL.") from error

    async def migrate(self) -> str:
        """Create or upgrade the tables of messaging; safe to repeat."""
        return await self.run(migration(PACKAGE, "messaging", VERSION, self.dialect))

    async def close(self) -> None:
        """Close the connections that are not in use; a later use opens them again."""
        spare, self._spare = self._spare, []
        for line in spare:
            await _closed(line)


async def _closed(line: Line) -> None:
    with suppress(Exception):  # closing is courtesy; the line is never used again either way
        await line.close()
