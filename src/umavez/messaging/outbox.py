"""Outbox and AsyncOutbox: messages written in the caller's transaction, there exactly if the change is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from umavez.clock import SYSTEM, Clock
from umavez.messaging.message import Message
from umavez.messaging.rows import appending
from umavez.messaging.version import PACKAGE, VERSION
from umavez.sql import AsyncSql, Sql
from umavez.sql_flow import SqlFlow, carry, carry_async, joining, migration


class Outbox:
    """Appends messages on sqlite3, psycopg, pymysql or SQLAlchemy connections. Holds nothing; share it freely."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock

    def append(self, connection: Any, messages: Message | Iterable[Message]) -> list[str]:
        """Write `messages` in the open transaction, by one statement however many; returns their ids.

        A message whose id is in the outbox already is left as it is. Raises NotStorable for one that cannot be
        kept, ConfigurationError on a connection that would commit at once; the driver's own errors pass through.
        """
        sql = Sql(connection)
        return carry(_appended(sql, messages, self._clock.offset), sql)

    def migrate(self, connection: Any) -> str:
        """Create or upgrade the tables of messaging in this database; commit afterwards."""
        sql = Sql(connection)
        return carry(migration(PACKAGE, "messaging", VERSION, sql.dialect), sql)


class AsyncOutbox:
    """The same on aiosqlite, psycopg, asyncmy or SQLAlchemy connections that are awaited."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock

    async def append(self, connection: Any, messages: Message | Iterable[Message]) -> list[str]:
        """See Outbox.append."""
        sql = await AsyncSql.on(connection)
        return await carry_async(_appended(sql, messages, self._clock.offset), sql)

    async def migrate(self, connection: Any) -> str:
        """See Outbox.migrate."""
        sql = await AsyncSql.on(connection)
        return await carry_async(migration(PACKAGE, "messaging", VERSION, sql.dialect), sql)


def _appended(sql: Sql | AsyncSql, messages: Message | Iterable[Message], offset: int) -> SqlFlow[list[str]]:
    given = [messages] if isinstance(messages, Message) else list(messages)
    if not given:
        return []
    statement = appending(sql.dialect, given, offset)
    yield from joining(sql)
    yield statement
    return [message.id for message in given]
