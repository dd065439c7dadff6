"""A connection of the MariaDB store's own, for tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from umavez.concurrency.hearing import async_heard
from umavez.errors import StoreUnavailable
from umavez.stores.mariadb.drivers import (
    async_cut,
    async_hung_up,
    async_leave,
    async_let_go,
    async_reach,
    async_stranded,
)
from umavez.stores.mariadb.errors import FAILURES, TRIES, failed, number, oversized, pause, unreachable, unstorable
from umavez.stores.mariadb.statements import Rows, Statement
from umavez.stores.mariadb.url import ISOLATION, LIMITS, Address, refuse_other_servers

Execute = Callable[[Statement], Awaitable[list[Rows]]]


class AsyncMariadbConnection:
    """Runs statements, for one caller at a time. Opened at first use, dropped after any error or cancellation.

    It is never used by a forked child, nor by another event loop.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Any = None
        self._pid = 0
        self._forgotten: list[Any] = []
        self._limit = 0
        self.retries = 0

    async def run(self, statement: Statement) -> list[Rows]:
        """The result sets of one statement. A deadlock is tried again, boundedly. Raises StoreError."""
        results: list[Rows] = await self.transact(lambda execute: execute(statement))
        return results

    async def transact(self, work: Callable[[Execute], Awaitable[Any]]) -> Any:
        """What `work` returns, which may send several statements of one transaction and must end it."""
        return await async_heard(self._transacted(work))

    async def _transacted(self, work: Callable[[Execute], Awaitable[Any]]) -> Any:
        tries = 0
        while True:
            connection = await self._open()
            try:
                return await work(partial(self._execute, connection))
            except FAILURES as error:
                tries += 1
                if tries >= TRIES.get(number(error), 0):
                    self.drop()
                    raise failed(error, str(self._address)) from error
                await self._roll_back(connection)
                self.retries += 1
                await asyncio.sleep(pause(tries))
            except UnicodeEncodeError as error:
                self.drop()
                raise unstorable(error) from error
            except BaseException:
                # Whatever it was, the conversation may be in the middle of an answer.
                self.drop()
                raise

    async def _execute(self, connection: Any, statement: Statement) -> list[Rows]:
        async with connection.cursor() as cursor:
            text = cursor.mogrify(statement.text, tuple(statement.values))
            size = len(text) if text.isascii() else len(text.encode())
            if size >= self._limit:
                raise oversized(size, self._limit)
            await cursor.execute(text)
            return await drained(cursor)

    async def _open(self) -> Any:
        self._forget_if_foreign()
        if self._connection is not None and async_hung_up(self._connection):
            self.drop()
        if self._connection is None:
            self._connection, self._limit = await set_up(self._address)
            self._pid = os.getpid()
        return self._connection

    def _forget_if_foreign(self) -> None:
        """Leave alone a connection of the parent process, and cut one of an event loop that is over."""
        connection = self._connection
        if connection is None:
            return
        if self._pid != os.getpid():
            # Not closed: the goodbye would go out on the parent's socket and end the parent's session.
            self._forgotten.append(connection)
        elif async_stranded(connection):
            # Kept, each loop would leave its sessions open at the server, until it lets nobody in any more.
            async_cut(connection)
        else:
            return
        self._connection = None

    async def _roll_back(self, connection: Any) -> None:
        """End the transaction: after 1205 only the statement was undone, and a half would be left open."""
        try:
            await connection.rollback()
        except FAILURES:
            self.drop()

    def drop(self) -> None:
        """Close the connection at once; the next use opens another."""
        connection = self._taken()
        if connection is not None:
            async_let_go(connection)

    async def close(self) -> None:
        """Take leave of the server and close the connection."""
        connection = self._taken()
        if connection is not None:
            await async_leave(connection)

    def _taken(self) -> Any:
        """The connection, which nobody else shall have any more; None where there is none."""
        self._forget_if_foreign()
        connection, self._connection = self._connection, None
        return connection


async def set_up(address: Address) -> tuple[Any, int]:
    """A new connection with the settings of our own, and the size that its server takes at most.

    Of several hosts it is the first that takes commands: a Galera node outside its cluster answers, and takes none.
    Raises StoreUnavailable, and ConfigurationError for a server that is no MariaDB.
    """
    *before, last = address.each()
    for host in before:
        with suppress(StoreUnavailable):
            return await _set_up(host)
    return await _set_up(last)


async def _set_up(address: Address) -> tuple[Any, int]:
    connection = await async_reach(address)
    try:
        async with connection.cursor() as cursor:
            await cursor.execute(address.session())
            await cursor.execute(ISOLATION)
            await cursor.execute(LIMITS)
            ((limit, version),) = await cursor.fetchall()
        refuse_other_servers(version, str(address))
    except BaseException as error:
        async_let_go(connection)
        if isinstance(error, FAILURES):
            raise unreachable(error, str(address)) from error
        raise
    return connection, limit


async def drained(cursor: Any) -> list[Rows]:
    """Every result set of a compound statement, without the closing empty one."""
    results = []
    more = True
    while more:
        if cursor.description is not None:
            results.append(await cursor.fetchall())
        more = await cursor.nextset()
    return results
