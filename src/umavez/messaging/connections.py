"""Connections of the relay's and the consumers' own: what each carries out, and how it is closed.

They are opened by the one module of each backend that opens connections, `stores/<backend>/connection.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from umavez.concurrency.threads import ThreadPool
from umavez.errors import StoreUncertain
from umavez.sql.connection import AsyncSql, Sql, async_close
from umavez.sql.flow import SqlFlow, async_carry, begun_late, carry
from umavez.stores import part_of

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")


class Connection(Protocol):
    """Carries out one flow at a time."""

    async def carry(self, flow: SqlFlow[T], *, atomic: bool) -> T:
        """What the flow returns; `atomic`, in a transaction of its own. Raises StoreUncertain and driver's errors."""
        ...

    def follows(self) -> bool:
        """Whether the loop that runs now can use it; where only another could, it is closed."""
        ...

    async def close(self) -> None:
        """Close it. Whatever was begun is rolled back."""
        ...


def opener(url: str) -> Callable[[], Awaitable[Connection]]:
    """Opens connections to `url`, which is read at once: raises ConfigurationError."""
    if url.startswith("sqlite:"):
        part_of(url, "url").parsed(url)
        return lambda: _open_file(url)
    module, tries = part_of(url, "connection"), part_of(url, "errors").tries
    connect = module.async_connector(url)

    async def opened() -> Connection:
        return ServerConnection(await connect(), tries, module.follows)

    return opened


class ServerConnection:
    """A driver's connection that is awaited, in autocommit mode."""

    def __init__(
        self,
        connection: Any,
        tries: Callable[[BaseException | None], int],
        follows: Callable[[Any], bool] = lambda _: True,
    ) -> None:
        self._connection = connection
        self._sql = AsyncSql(connection)
        self._tries = tries
        self._follows = follows

    async def carry(self, flow: SqlFlow[T], *, atomic: bool) -> T:
        """See Connection.carry."""
        if not atomic:
            return await async_carry(flow, self._sql)
        result, begun = await async_carry(begun_late(flow, "BEGIN"), self._sql)
        if begun:
            await self._commit()
        return result

    async def _commit(self) -> None:
        try:
            await self._sql.count("COMMIT")
        except Exception as error:
            if self._tries(error):
                raise  # a clear no: it gave way to a rival, and nothing was written
            raise StoreUncertain("The database did not confirm the commit; what was written may stand.") from error

    def follows(self) -> bool:
        """See Connection.follows."""
        return self._follows(self._connection)

    async def close(self) -> None:
        """See Connection.close."""
        await async_close(self._connection)


async def _open_file(url: str) -> Connection:
    thread = ThreadPool(1, "umavez-messages")
    try:
        return FileConnection(await thread.run(part_of(url, "connection").connect_beside, url), thread)
    except BaseException:
        thread.close()
        raise


class FileConnection:
    """An SQLite file in a thread of its own: one, because writers of one process only fight for the lock.

    A flow never waits for the event loop. Awaited statement by statement, it would hold the file's lock while the loop
    is busy; and if what keeps the loop busy is a handler that waits for that lock, both would stand still.
    """

    def __init__(self, connection: sqlite3.Connection, thread: ThreadPool) -> None:
        # One text that is not UTF-8 must not make every claim of its neighbours fail; it is found out when it is sent.
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        self._connection = connection
        self._sql = Sql(connection)
        self._thread = thread

    async def carry(self, flow: SqlFlow[T], *, atomic: bool) -> T:
        """See Connection.carry; it is atomic always."""
        return await self._thread.run(self._transact, flow)

    def _transact(self, flow: SqlFlow[T]) -> T:
        try:
            result, begun = carry(begun_late(flow, "BEGIN IMMEDIATE"), self._sql)
            if begun:
                self._connection.execute("COMMIT")
            return result
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise

    def follows(self) -> bool:
        """It does: its thread answers whichever loop asks."""
        return True

    async def close(self) -> None:
        """Close the file once the statement under way, if any, has ended."""
        await self._thread.run(self._connection.close)
        self._thread.close()
