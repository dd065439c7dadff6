"""Database: connections of the relay's and the consumers' own, awaited, on SQLite, PostgreSQL and MariaDB.

A connection that has met an error is dropped, never used again: whatever was begun on it is rolled back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Any, TypeVar

from umavez.clock import SYSTEM, Clock
from umavez.concurrency.after_fork import reset_after_fork
from umavez.concurrency.hearing import async_heard
from umavez.errors import (
    TABLES_MISSING,
    ConfigurationError,
    SchemaOutdated,
    StoreError,
    StoreUnavailable,
)
from umavez.messaging.connections import Connection, opener
from umavez.messaging.tables.causes import making
from umavez.messaging.wakeups import CHANNEL
from umavez.sql.connection import Dialect
from umavez.sql.flow import SqlFlow
from umavez.stores import part_of, without_password

T = TypeVar("T")
PAUSE = 0.01
"""Seconds before a victim tries again; it grows with every try, and chance keeps two victims apart."""


_DIALECTS = {
    "sqlite": Dialect.SQLITE,
    "postgresql": Dialect.POSTGRES,
    "postgres": Dialect.POSTGRES,
    "mariadb": Dialect.MARIADB,
    "mysql": Dialect.MARIADB,
}


class Database:
    """Runs flows on connections it keeps; made from the same URL as the store.

    Used by the tasks of one loop at a time: where one is over and another begins, it goes on in that.
    """

    def __init__(self, url: str, *, clock: Clock = SYSTEM) -> None:
        scheme = url.partition(":")[0]
        if scheme not in _DIALECTS:
            raise ConfigurationError(
                f"{without_password(url)!r} cannot hold messages; use sqlite:///file, postgresql://… or mariadb://…."
            )
        self.dialect = _DIALECTS[scheme]
        self.clock = clock
        self._url = url
        self._open = opener(url)
        errors = part_of(url, "errors")
        self._translate: Callable[[BaseException], StoreError | None] = errors.translate
        self._tries: Callable[[BaseException | None], int] = errors.tries
        self._spare: list[Connection] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: AbstractAsyncContextManager[Any] = nullcontext()
        reset_after_fork(self)

    def reset(self) -> None:
        """Begin anew in a forked child: connections are the parent's, and the threads of a file's are not here."""
        _INHERITED.extend(self._spare)
        self._spare, self._loop = [], None

    async def listen(self, told: Callable[[], None]) -> None:
        """Call `told` whenever a message was committed by anybody; returns where the database has no such word.

        Raises StoreError when the connection fails; hints are missed then, and nothing else.
        """
        if self.dialect is not Dialect.POSTGRES:
            return
        try:
            await part_of(self._url, "connection").listen(self._url, CHANNEL, told)
        except Exception as error:
            raise self._translate(error) or error from error

    async def run(self, make: Callable[[], SqlFlow[T]], *, atomic: bool = True) -> T:
        """Carry out the flow that `make` makes in a transaction of its own, as often as rivals make it give way.

        Where the server chose it as the victim of a deadlock nothing was written, so a fresh flow is safe. Tries are
        bounded; see `tried` for the rest.
        """
        failures = 0
        while True:
            try:
                return await self.tried(make(), atomic=atomic)
            except StoreError as error:
                failures += 1
                if failures >= self._tries(error.__cause__):
                    raise
            await asyncio.sleep(PAUSE * failures * random.random())  # noqa: S311 - spreads load, guards nothing

    async def tried(self, flow: SqlFlow[T], *, atomic: bool = True) -> T:
        """Carry out `flow` once; not `atomic` saves the BEGIN and COMMIT of a single statement.

        Raises StoreUnavailable when nothing was written, StoreUncertain when the answer was lost.
        """
        # Opening a connection is heard here, too.
        return await async_heard(self._carried(flow, atomic))

    async def _carried(self, flow: SqlFlow[T], atomic: bool) -> T:
        async with self._connection() as connection:
            return await connection.carry(flow, atomic=atomic)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        if self._loop is not asyncio.get_running_loop():
            self._move()
        async with self._turn, self._lent() as connection:
            yield connection

    def _move(self) -> None:
        """Go on in the loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._spare = [connection for connection in self._spare if connection.follows()]
        if self.dialect is Dialect.SQLITE:
            # One at a time: two would wait for each other's locks by sleeping, which takes longer than a turn in line.
            self._turn = asyncio.Lock()

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Connection]:
        connection = self._spare.pop() if self._spare else await self._opened()
        try:
            yield connection
        except BaseException as error:  # a cancelled task too: its statement may still be running there
            await _close(connection)
            meant = self._translate(error) if isinstance(error, Exception) else None
            if meant is None:
                raise
            if isinstance(meant, SchemaOutdated):
                meant = SchemaOutdated(TABLES_MISSING)
            if not self._tries(error):
                # The other connections to a server that went away are as dead as this one.
                await self.close()
            raise meant from error
        self._spare.append(connection)

    async def _opened(self) -> Connection:
        try:
            return await self._open()
        except Exception as error:
            meant = self._translate(error)
            if meant is None:
                raise
            if meant.may_have_happened:  # said of a connection in use; over this one nothing was sent yet
                meant = StoreUnavailable("The database of the messages cannot be reached; check the URL.")
            raise meant from error

    async def migrate(self) -> str:
        """Create or upgrade the tables of messaging; safe to repeat."""
        return await self.run(lambda: making(self.dialect))

    async def close(self) -> None:
        """Close the connections that are not in use; a later use opens them again."""
        if self._loop is not asyncio.get_running_loop():
            self._move()
        spare, self._spare = self._spare, []
        for connection in spare:
            await _close(connection)


_INHERITED: list[Connection] = []
"""Connections of a parent process. Kept, so that nothing closes them: closing would end the parent's session."""


async def _close(connection: Connection) -> None:
    with suppress(Exception):  # closing is courtesy; it is never used again either way
        await connection.close()
