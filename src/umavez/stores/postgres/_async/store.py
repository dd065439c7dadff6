"""The PostgreSQL store for tasks; see `umavez.stores.postgres.store`."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import psycopg
from psycopg import AsyncConnection

from umavez.clock import SYSTEM, Clock
from umavez.concurrency.after_fork import reset_after_fork
from umavez.concurrency.group_commit import AsyncGroupCommit
from umavez.concurrency.pool import AsyncPool
from umavez.concurrency.shelter import async_sheltered, async_sheltered_swap
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record
from umavez.core.telling.events import MOST_EVENTS, MOST_REMARKS, EventDraft, PastEvent, Process
from umavez.core.telling.minutes import KEPT, Tally, flat, tally_of
from umavez.core.telling.origin import Origin
from umavez.errors import ConfigurationError
from umavez.stores.keeping import FORGOTTEN, Keeping
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres._async.connection import AsyncPostgresConnection
from umavez.stores.postgres._async.joined import AsyncJoinedPostgresStore
from umavez.stores.postgres._async.swaps import AsyncPostgresLane
from umavez.stores.postgres._async.upgrade import async_between_transactions, async_upgraded
from umavez.stores.postgres.errors import failed, is_lost, not_reached
from umavez.stores.postgres.joined import WAIT
from umavez.stores.postgres.queries import asks_time, check_known, found, looking, migrated, schema, seen
from umavez.stores.postgres.url import target_of
from umavez.stores.postgres.values import Row, parameters

SWEPT = 1000
"""Records deleted by one statement: its locks are held for a few milliseconds."""

_new = tuple.__new__  # see core/drafts.py, where its gain is told
_INHERITED: list[object] = []
"""Lanes of a parent process. Kept, so that nothing closes them: closing would end the parent's session."""


class AsyncPostgresStore:
    """Records in PostgreSQL, shared by the tasks of one loop."""

    def __init__(self, url: str, clock: Clock = SYSTEM) -> None:
        self._target = target_of(url)
        self._clock = clock
        self._looks = AsyncPool(partial(AsyncPostgresConnection, self._target), 1, self._target.timeout)
        self._keeping, self._minding = Keeping(), Keeping("The table of minutes is")
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        self._lanes = [AsyncPostgresLane(self._target, self._clock, self._keeping) for _ in range(self._target.lanes)]
        self._group = AsyncGroupCommit(self._lanes, self._target.timeout)

    def reset(self) -> None:
        """What a forked child does: the sockets are the parent's."""
        _INHERITED.extend(self._lanes)
        self._begin()

    @async_sheltered_swap
    def swap(self, expected: str | None, draft: Draft) -> Coroutine[Any, Any, Swapped | Stale]:
        """See Store.swap. Concurrent callers share statements and commits."""
        return self._group.swap(_new(Swap, (expected, draft)))  # no coroutine of its own: one less for each swap

    @async_sheltered
    async def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return seen(key, await self._ask(sql.SEEN, self._clock.offset, key.digest))

    @async_sheltered
    async def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        now = 0
        if asks_time(query):
            ((now,),) = await self._ask(sql.TIME, self._clock.offset)
        text, values = looking(query, now)
        return found(await self._ask(text, *values))

    @async_sheltered
    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records, a thousand at a time, passing over those that somebody holds."""
        swept = 0
        text = sql.SWEEP_TELLING if await self._keeps() else sql.SWEEP
        while swept < limit:
            most = min(SWEPT, limit - swept)
            ((count,),) = await self._ask(text, self._clock.offset, older_than, most)
            swept += count
            if count < most:
                break
        return swept

    @async_sheltered
    async def history(self, key: Key) -> list[PastEvent]:
        """The events of `key`, oldest first."""
        if not await self._keeps():
            return []
        return [PastEvent(*row) for row in await self._ask(sql.HISTORY, key.digest, MOST_EVENTS)]

    @async_sheltered
    async def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
        """Keep an event that belongs to no swap, a few for each record."""
        if await self._keeps():
            words = (self._clock.offset, key.digest, event.kind, attempt, fence, holder, *event[1:], MOST_REMARKS)
            await self._ask(sql.REMARK, *words)

    @async_sheltered
    async def origin(self, key: Key) -> Origin | None:
        """Where the last claim came from that brought an origin."""
        rows = await self._ask(sql.ORIGIN, key.digest) if await self._keeps() else ()
        return Origin.of(rows[0][0]) if rows else None

    @async_sheltered
    async def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Put what `process` has counted in the place of what it had; the store's time."""
        if not await self._minds():
            ((now,),) = await self._ask(sql.TIME, self._clock.offset)
        else:
            words = (self._clock.offset, span, process, json.dumps(flat(tallies)), KEPT[span])
            ((now,),) = await self._ask(sql.TALLY, *words)
        return int(now)

    @async_sheltered
    async def tallied(
        self, span: Millis, newer_than: Millis, operation: str | None = None, limit: int = 50_000
    ) -> list[Tally]:
        """What all processes have counted."""
        if not await self._minds():
            return []
        words = (self._clock.offset, span, newer_than, operation, limit)
        return sorted(tally_of(row) for row in await self._ask(sql.TALLIED, *words))

    async def _minds(self) -> bool:
        there = self._minding.there
        if there is None:
            ((there,),) = await self._ask(sql.MINDS)
            self._minding.learn(there=there)
        return there

    @async_sheltered
    async def announce(self, process: Process) -> None:
        """Say that `process` lives."""
        if await self._keeps():
            await self._ask(sql.ANNOUNCE, self._clock.offset, *process[:6], FORGOTTEN)

    @async_sheltered
    async def processes(self, limit: int = 100) -> list[Process]:
        """The processes that were announced, the last seen first."""
        if not await self._keeps():
            return []
        return [Process(*row) for row in await self._ask(sql.PROCESSES, limit)]

    async def _keeps(self) -> bool:
        there = self._keeping.there
        if there is None:
            ((there,),) = await self._ask(sql.KEEPS)
            self._keeping.learn(there=there)
        return there

    async def _ask(self, text: str, *values: Any) -> list[Row]:
        connection = await self._looks.take()
        try:
            return await connection.rows(text, parameters(values))
        finally:
            self._looks.give_back(connection)

    @async_sheltered
    async def migrate(self) -> str:
        """Create the tables, or say that they stand. Raises SchemaOutdated when they are newer than this version."""
        try:
            connection = await AsyncConnection.connect(self._target.conninfo)
        except psycopg.Error as error:
            raise not_reached(error) from error
        async with connection:
            try:
                return await _migrate(connection)
            except psycopg.Error as error:
                raise failed(error, is_lost(error, connection)) from error

    def joined(self, connection: Any, wait: float = WAIT) -> AsyncJoinedPostgresStore:
        """The store in the transaction of a psycopg.AsyncConnection; a rival's claim is waited for `wait` seconds."""
        if not isinstance(connection, AsyncConnection):
            raise ConfigurationError(f"joined() takes a psycopg.AsyncConnection here, not {type(connection).__name__}.")
        return AsyncJoinedPostgresStore(connection, self._clock, wait, self._target.database, self._keeping)

    @async_sheltered
    async def close(self) -> None:
        """Close every connection, those in use when their call is over. A later use opens new ones."""
        await self._group.close()
        await self._looks.close()


async def _migrate(connection: AsyncConnection[Any]) -> str:
    await connection.set_autocommit(True)
    found = await _version(connection)
    if found == 1:
        await async_upgraded(connection)
    before, whole = await async_between_transactions(partial(_completed, connection))
    return migrated(found if found == 1 else before, whole=whole)


async def _completed(connection: AsyncConnection[Any]) -> tuple[int, bool]:
    """Make what is missing, for one process at a time; the version that was there before, and whether it was whole."""
    async with connection.transaction():
        await connection.execute(sql.PATIENCE)
        await connection.execute(sql.MIGRATING)
        before = await _version(connection)
        check_known(before, foreign=bool(await _first(connection, sql.FOREIGN)))
        whole = await _first(connection, sql.WHOLE)
        if before < sql.VERSION or not whole:  # else left alone: creating an index that is there locks its table
            await connection.execute(schema())
    return before, bool(whole)


async def _version(connection: AsyncConnection[Any]) -> int:
    """The version of the tables that are there; 0 where there are none."""
    return int((await _first(connection, sql.INSTALLED) or 0) if await _first(connection, sql.META) else 0)


async def _first(connection: AsyncConnection[Any], text: str) -> Any:
    """The only value that a statement returns; None where it returns no row."""
    cursor = await connection.execute(text)
    row = await cursor.fetchone()
    return None if row is None else row[0]
