"""The MariaDB store for tasks: the same statements over asyncmy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncmy
import asyncmy.errors

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import OperationInProgress, StoreUnavailable
from umavez.stores.grouping import TaskGroup
from umavez.stores.mariadb_address import ISOLATION, LIMITS, SESSION, Address, refuse_other_servers
from umavez.stores.mariadb_batch import Batch
from umavez.stores.mariadb_faults import TRIES, Blocked, failed, number, oversized, unreachable
from umavez.stores.mariadb_joined import AsyncJoinedMariadbStore, adrained
from umavez.stores.mariadb_limits import refuse_long_texts
from umavez.stores.mariadb_lines import ROUNDS, STUBBORN, pause
from umavez.stores.mariadb_schema import BEGIN, COMMIT, PRESENT, SCHEMA, VERSION, checked, told
from umavez.stores.mariadb_sql import (
    Reply,
    Rows,
    Statement,
    Texts,
    answer,
    deleting,
    expired,
    finding,
    found,
    reading,
    seen,
    swapping,
    texts_at,
)

Connection = Any
Execute = Callable[[Statement], Awaitable[list[Rows]]]


class AsyncLine:
    """A Line for one event loop; see `mariadb_lines.Line`. A cancelled statement drops its connection."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Connection | None = None
        self._pid = 0
        self._forgotten: list[Connection] = []
        self._limit = 0
        self.retries = 0

    async def run(self, statement: Statement) -> list[Rows]:
        """The result sets of one statement; see Line.run."""
        results: list[Rows] = await self.transact(lambda execute: execute(statement))
        return results

    async def transact(self, work: Callable[[Execute], Awaitable[Any]]) -> Any:
        """What `work` returns; see Line.transact."""
        tries = 0
        while True:
            connection = await self._open()
            try:
                return await work(partial(self._execute, connection))
            except (asyncmy.errors.MySQLError, OSError) as error:
                tries += 1
                if tries >= TRIES.get(number(error), 0):
                    self.drop()
                    raise failed(error, str(self._address)) from error
                await self._roll_back(connection)
                self.retries += 1
                await asyncio.sleep(pause(tries))
            except BaseException:
                self.drop()
                raise

    async def _execute(self, connection: Connection, statement: Statement) -> list[Rows]:
        async with connection.cursor() as cursor:
            text = cursor.mogrify(statement.text, tuple(statement.values))
            size = len(text) if text.isascii() else len(text.encode())
            if size >= self._limit:
                raise oversized(size, self._limit)
            await cursor.execute(text)
            return await adrained(cursor)

    async def _open(self) -> Connection:
        self._forget_if_foreign()
        if self._connection is not None and self._connection._stream_broken:  # noqa: SLF001 - shown nowhere else
            self.drop()
        if self._connection is None:
            self._connection, self._limit = await _connect(self._address)
            self._pid = os.getpid()
        return self._connection

    def _forget_if_foreign(self) -> None:
        """Leave alone a connection of the parent process, or of an event loop that is no longer running."""
        connection = self._connection
        if connection is None:
            return
        if self._pid != os.getpid() or connection.loop is not asyncio.get_running_loop():
            self._forgotten.append(connection)
            self._connection = None

    async def _roll_back(self, connection: Connection) -> None:
        try:
            await connection.rollback()
        except (asyncmy.errors.MySQLError, OSError):
            self.drop()

    def drop(self) -> None:
        """Close the connection at once; the next use opens another."""
        self._forget_if_foreign()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Take leave of the server and close the connection."""
        self._forget_if_foreign()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.ensure_closed()


class AsyncMariadbLane:
    """An AsyncLine that carries swaps."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.line = AsyncLine(address)
        self._clock = clock

    async def send(self, batch: Sequence[Swap]) -> Sequence[Reply]:
        """See Lane.send."""
        texts = texts_at(self._clock.offset)
        if len(batch) == 1:
            return (await self._alone(texts, batch[0]),)
        together = Batch(batch, texts)
        answers = together.answers(await self.line.run(together.statement()))
        return [reply or await self._look(texts, swap) for swap, reply in zip(batch, answers, strict=True)]

    async def _alone(self, texts: Texts, swap: Swap) -> Reply:
        for round_ in range(ROUNDS):
            reply = answer(swap, (await self.line.run(swapping(texts, swap, again=round_ > 0)))[0])
            if reply is not None:
                return reply
        raise StoreUnavailable(STUBBORN)

    async def _look(self, texts: Texts, swap: Swap) -> Stale:
        key = swap.draft.key
        return Stale(*seen(key, (await self.line.run(reading(texts, key)))[0]))

    async def close(self) -> None:
        """Close the connection."""
        await self.line.close()


class AsyncMariadbStore:
    """Keeps records in MariaDB for the tasks of one event loop, which share `lanes` connections."""

    def __init__(self, address: Address, clock: Clock = SYSTEM) -> None:
        self._address = address
        self._clock = clock
        self._lanes = [AsyncMariadbLane(address, clock) for _ in range(address.lanes)]
        self._group = TaskGroup(self._lanes)
        self._spare: list[AsyncLine] = []

    @property
    def retries(self) -> int:
        """See MariadbStore.retries."""
        return sum(lane.line.retries for lane in self._lanes)

    async def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        async with self._line() as line:
            return seen(key, (await line.run(reading(texts_at(self._clock.offset), key)))[0])

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands; see MariadbStore.swap."""
        refuse_long_texts(draft)
        try:
            return await self._group.swap(Swap(expected, draft))
        except Blocked as blocked:
            raise OperationInProgress(draft.key, 1.0) from blocked

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records, passing over those that are just being changed."""
        texts = texts_at(self._clock.offset)

        async def work(execute: Execute) -> int:
            await execute(BEGIN)
            digests = [row[0] for row in (await execute(expired(texts, limit, older_than)))[0]]
            gone = len((await execute(deleting(texts, digests, older_than)))[0]) if digests else 0
            await execute(COMMIT)
            return gone

        async with self._line() as line:
            return int(await line.transact(work))

    async def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        texts = texts_at(self._clock.offset)
        async with self._line() as line:
            now = (await line.run(texts.clock()))[0][0][0]
            return found((await line.run(finding(texts, query, now)))[0])

    async def migrate(self) -> str:
        """Create or upgrade the tables; see MariadbStore.migrate."""
        async with self._line() as line:
            before = checked(await line.run(VERSION)) if (await line.run(PRESENT))[0][0][0] else 0
            for statement in SCHEMA:
                await line.run(statement)
            return told(before, checked(await line.run(VERSION)), str(self._address))

    def joined(self, connection: Any, wait: float = 10.0) -> AsyncJoinedMariadbStore:
        """The store inside the caller's transaction on an asyncmy connection; see Store.joined."""
        return AsyncJoinedMariadbStore(connection, self._clock, wait)

    async def close(self) -> None:
        """Close every connection. Safe to repeat; a later use opens them again."""
        await self._group.close()
        spare, self._spare = self._spare, []
        for line in spare:
            await line.close()

    @asynccontextmanager
    async def _line(self) -> AsyncIterator[AsyncLine]:
        line = self._spare.pop() if self._spare else AsyncLine(self._address)
        try:
            yield line
        finally:
            if len(self._spare) < self._address.lanes:
                self._spare.append(line)
            else:
                line.drop()


async def _connect(address: Address) -> tuple[Connection, int]:
    try:
        connection = await asyncmy.connect(**address.arguments(), autocommit=None)
    except (asyncmy.errors.MySQLError, OSError) as error:
        raise unreachable(error, str(address)) from error
    try:
        async with connection.cursor() as cursor:
            await cursor.execute(SESSION)
            await cursor.execute(ISOLATION)
            await cursor.execute(LIMITS)
            limit, version = (await cursor.fetchall())[0]
        refuse_other_servers(version, str(address))
    except BaseException as error:
        connection.close()
        if isinstance(error, asyncmy.errors.MySQLError | OSError):
            raise unreachable(error, str(address)) from error
        raise
    return connection, limit
