"""The SQLite store for tasks: looks and replays on the loop itself, commits in one thread.

By hand, not the source of `store`: a file is not awaited, so it is that store which does the work here.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from umavez.clock import SYSTEM, Clock
from umavez.concurrency.group_commit import AsyncGroupCommit
from umavez.concurrency.threads import ThreadPool
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record
from umavez.core.telling.events import EventDraft, PastEvent, Process
from umavez.core.telling.minutes import Tally
from umavez.core.telling.origin import Origin
from umavez.stores import AsyncStore
from umavez.stores.awaited import Awaited
from umavez.stores.sqlite._async.joined import AsyncJoinedSqliteStore
from umavez.stores.sqlite._sync.joined import JoinedSqliteStore
from umavez.stores.sqlite.store import SqliteLane, SqliteStore

T = TypeVar("T")


class AsyncSqliteStore:
    """Keeps records in one SQLite file. A look takes microseconds and runs inline; a commit waits for the
    disk and runs in a thread, shared with everybody who comes meanwhile."""

    def __init__(
        self, path: Path, journal: str = "wal", *, clock: Clock = SYSTEM, timeout: float | None = None
    ) -> None:
        self._store = SqliteStore(path, journal, clock=clock, timeout=timeout)
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._thread = ThreadPool(1, "umavez-sqlite")
        lane = _ThreadLane(SqliteLane(self._store.file, self._clock), self._thread)
        self._group = AsyncGroupCommit([lane], self._store.file.timeout)

    def _reset_after_fork(self) -> None:
        """A forked child has no thread to commit in, and whoever queued belongs to the parent's loop."""
        if self._pid != os.getpid():
            self._begin()

    async def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        return self._store.look(key)

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands."""
        self._reset_after_fork()
        stale = self._store.glance(expected, draft)
        return await self._group.swap(Swap(expected, draft)) if stale is None else stale

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records."""
        return await self._elsewhere(self._store.sweep, limit, older_than)

    async def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        return await self._elsewhere(self._store.find, query)

    async def history(self, key: Key) -> list[PastEvent]:
        """The events of `key`, oldest first."""
        return await self._elsewhere(self._store.history, key)

    async def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
        """Keep an event that belongs to no swap, a few for each record."""
        await self._elsewhere(self._store.remark, key, event, attempt, fence, holder)

    async def origin(self, key: Key) -> Origin | None:
        """Where the last claim came from that brought an origin."""
        return await self._elsewhere(self._store.origin, key)

    async def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """See Tallies.tally."""
        return await self._elsewhere(self._store.tally, process, span, tallies)

    async def tallied(
        self, span: Millis, newer_than: Millis, operation: str | None = None, limit: int = 50_000
    ) -> list[Tally]:
        """See Tallies.tallied."""
        return await self._elsewhere(self._store.tallied, span, newer_than, operation, limit)

    async def announce(self, process: Process) -> None:
        """Say that `process` lives."""
        await self._elsewhere(self._store.announce, process)

    async def processes(self, limit: int = 100) -> list[Process]:
        """The processes that were announced, the last seen first."""
        return await self._elsewhere(self._store.processes, limit)

    async def migrate(self) -> str:
        """Create the tables."""
        return await self._elsewhere(self._store.migrate)

    def joined(self, connection: Any, wait: float = 10.0) -> AsyncStore:
        """The same store on the caller's connection: sqlite3's own, or one that is awaited (aiosqlite)."""
        if isinstance(connection, sqlite3.Connection):
            return Awaited(JoinedSqliteStore(connection, self._store.clock, self._store.file.path, wait))
        return AsyncJoinedSqliteStore(connection, self._store.clock, self._store.file.path, wait)

    async def close(self) -> None:
        """Wait for what is under way and close the file."""
        await self._group.close()
        self._thread.close()
        self._store.close()

    async def _elsewhere(self, call: Callable[..., T], *args: Any) -> T:
        self._reset_after_fork()
        return await self._thread.run(call, *args)


class _ThreadLane:
    """A lane whose commits run in a thread. A cancelled caller leaves the commit to finish by itself."""

    def __init__(self, lane: SqliteLane, thread: ThreadPool) -> None:
        self._lane = lane
        self._thread = thread

    async def send(self, batch: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        """Carry out the swaps in one transaction."""
        return await self._thread.run(self._lane.send, batch)

    def forget(self) -> None:
        """Nothing: the thread ends what it is doing, whoever waits for it."""

    async def close(self) -> None:
        """The file closes its connections itself."""
