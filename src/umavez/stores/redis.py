"""The Redis store: one JSON value per record, one Lua script for every transition.

What it promises depends on the server. Redis acknowledges before it replicates, syncs its log once a second
unless told otherwise, and evicts keys under memory pressure, so by default this store is best effort: after
a crash, a failover or an eviction an operation may run again. Do not keep money with it. `?strict=1`
refuses, at every connection, a server without `maxmemory-policy noeviction`, `appendonly yes` and
`appendfsync always`, or with replicas; where it is accepted, an acknowledged record stays. Settings changed
later are seen at the next connection. Fences never fall below the server's clock in microseconds, so that a
counter lost with its server does not begin again under fences that were given before.

Expiry is a comparison with the server's clock, as in every store; Redis's own TTL is housekeeping, set a
day later and only on records that may be swept. It removes values, not index entries: run `sweep()` now and
then. Running and unknown records are indexed by age; settled ones by expiry, so finding those reads all that
have their status, however few are asked for. A process instance or a whole key is found directly.

Keys are `{prefix}:…` with the braces, a hash tag: in a cluster all records of one prefix live on one node.
The URL must name that node; redirections are not followed. Options: `prefix` (umavez), `strict` (0),
`timeout` and `connect_timeout` (5 seconds), `ca` (PEM file, for rediss://).
"""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import Any, NoReturn, TypeVar

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import ConfigurationError, StoreUnavailable, StoreUncertain
from umavez.stores import AsyncStore, Store
from umavez.stores.redis_address import address_of
from umavez.stores.redis_command import SWAP
from umavez.stores.redis_dialogue import Dialogue, Dialogues, ForeignReply
from umavez.stores.redis_link import Link, open_link
from umavez.stores.redis_pipe import Pipe
from umavez.stores.redis_value import quoted

T = TypeVar("T")

FOREIGN = "Redis answered another command than the one asked; the connection was closed and the write may stand."


def open_store(url: str, clock: Clock) -> Store:
    """The store at `url`; it connects at the first use."""
    return RedisStore(url, clock)


def open_async_store(url: str, clock: Clock) -> AsyncStore:
    """The store at `url`, awaited; it connects at the first use."""
    return AsyncRedisStore(url, clock)


class RedisStore:
    """Keeps records in Redis. Threads share one socket and their round trips."""

    def __init__(self, url: str, clock: Clock = SYSTEM) -> None:
        address = address_of(url)
        self._dialogues = Dialogues(address, clock)
        self._pipe = Pipe(address)

    def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return self._look(self._dialogues.read(key))

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands, in one command; see Store.swap."""
        stamp = quoted(draft.stamp)
        command = self._dialogues.swaps.swapping(expected, draft, stamp)
        try:
            reply = self._pipe.call(command)
            if type(reply) is not list:
                reply = self._carry(self._dialogues.taught(SWAP, command, reply))
            return self._dialogues.swapped(reply, draft, stamp)
        except ForeignReply as error:
            self._pipe.distrust()
            raise StoreUncertain(FOREIGN) from error

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records, or what is left of them where Redis's TTL was faster."""
        return self._hold(self._dialogues.sweep(limit, older_than))

    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first; by process instance or status without scanning."""
        return self._look(self._dialogues.find(query))

    def migrate(self) -> str:
        """Load the scripts. Raises ConfigurationError where Redis is older than 6.2."""
        return self._look(self._dialogues.migrate())

    def joined(self, connection: Any, wait: float = 10.0) -> NoReturn:
        """Refused: a Redis command cannot be part of somebody's transaction and be answered inside it."""
        _refuse_to_join()

    def close(self) -> None:
        """Close the socket; the next use opens a new one."""
        self._pipe.close()

    def _hold(self, dialogue: Dialogue[T]) -> T:
        try:
            return self._carry(dialogue)
        except ForeignReply as error:
            self._pipe.distrust()
            raise StoreUncertain(FOREIGN) from error

    def _carry(self, dialogue: Dialogue[T]) -> T:
        try:
            command = next(dialogue)
            while True:
                command = dialogue.send(self._pipe.call(command))
        except StopIteration as end:
            result: T = end.value
            return result

    def _look(self, dialogue: Dialogue[T]) -> T:
        """Hold a dialogue that changes no record: where its answer is lost, nothing is uncertain."""
        try:
            return self._hold(dialogue)
        except StoreUncertain as error:
            raise StoreUnavailable(f"{_first_part(error)}; nothing was written, so try again.") from error


class AsyncRedisStore:
    """Keeps records in Redis. The tasks of a loop share one connection and their round trips."""

    def __init__(self, url: str, clock: Clock = SYSTEM) -> None:
        self._address = address_of(url)
        self._dialogues = Dialogues(self._address, clock)
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        _STORES.add(self)

    async def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return await self._look(self._dialogues.read(key))

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands, in one command; see Store.swap."""
        link = self._link
        if link is None or link.closed or link.loop is not asyncio.get_running_loop():
            link = await self._opened()
        stamp = quoted(draft.stamp)
        command = self._dialogues.swaps.swapping(expected, draft, stamp)
        try:
            reply = await link.call(command)
            if type(reply) is not list:
                reply = await self._carry(link, self._dialogues.taught(SWAP, command, reply))
            return self._dialogues.swapped(reply, draft, stamp)
        except ForeignReply as error:
            link.fail(error)
            raise StoreUncertain(FOREIGN) from error

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records, or what is left of them where Redis's TTL was faster."""
        return await self._hold(self._dialogues.sweep(limit, older_than))

    async def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first; by process instance or status without scanning."""
        return await self._look(self._dialogues.find(query))

    async def migrate(self) -> str:
        """Load the scripts. Raises ConfigurationError where Redis is older than 6.2."""
        return await self._look(self._dialogues.migrate())

    def joined(self, connection: Any, wait: float = 10.0) -> NoReturn:
        """Refused: a Redis command cannot be part of somebody's transaction and be answered inside it."""
        _refuse_to_join()

    async def close(self) -> None:
        """Wait for the replies that are due and close the connection; the next use opens a new one."""
        link, self._link = self._link, None
        if link is not None and link.loop is asyncio.get_running_loop():
            await link.close()

    async def _hold(self, dialogue: Dialogue[T]) -> T:
        link = self._link
        if link is None or link.closed or link.loop is not asyncio.get_running_loop():
            link = await self._opened()
        try:
            return await self._carry(link, dialogue)
        except ForeignReply as error:
            link.fail(error)
            raise StoreUncertain(FOREIGN) from error

    async def _carry(self, link: Link, dialogue: Dialogue[T]) -> T:
        try:
            command = next(dialogue)
            while True:
                command = dialogue.send(await link.call(command))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _look(self, dialogue: Dialogue[T]) -> T:
        """Hold a dialogue that changes no record: where its answer is lost, nothing is uncertain."""
        try:
            return await self._hold(dialogue)
        except StoreUncertain as error:
            raise StoreUnavailable(f"{_first_part(error)}; nothing was written, so try again.") from error

    async def _opened(self) -> Link:
        """The link that all tasks share. A task cancelled meanwhile does not take it from the others."""
        loop = asyncio.get_running_loop()
        opening = self._opening
        if opening is None or opening.done() or opening.get_loop() is not loop:
            opening = self._opening = loop.create_task(open_link(self._address))
            opening.add_done_callback(self._keep)
        return await asyncio.shield(opening)

    def _keep(self, opening: asyncio.Task[Link]) -> None:
        # Asking for the exception also marks it as seen, for when every waiting task was cancelled.
        if not opening.cancelled() and opening.exception() is None:
            self._link = opening.result()

    def forsake(self) -> None:
        """Begin anew in a forked child, leaving the parent's connection alone."""
        if self._link is not None:
            _FORSAKEN.append(self._link)
        self._link = self._opening = None


_STORES: weakref.WeakSet[AsyncRedisStore] = weakref.WeakSet()
_FORSAKEN: list[Link] = []
"""Links of a parent process: kept, since their end would reach into the parent's event loop."""


def _forsake_all() -> None:
    for store in _STORES:
        store.forsake()


os.register_at_fork(after_in_child=_forsake_all)


def _refuse_to_join() -> NoReturn:
    raise ConfigurationError("The Redis store cannot join a transaction; use sqlite:, postgresql: or mariadb:.")


def _first_part(error: StoreUncertain) -> str:
    return str(error).partition(",")[0]
