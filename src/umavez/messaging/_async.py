"""Outbox and inbox for tasks: messages are there exactly if the change is, and each is handled once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from umavez._async.once import AsyncOnce
from umavez.clock import SYSTEM, Clock
from umavez.messaging.message import Message
from umavez.messaging.observing import MessageObserver, MessageObservers
from umavez.messaging.tables.causes import making
from umavez.messaging.tables.rows import append
from umavez.messaging.wakeups import WAKEUPS
from umavez.sql.connection import AsyncSql
from umavez.sql.flow import async_carry

KEEP = 30 * 24 * 3600.0
"""Seconds that a handled id is remembered. A message may come again for as long as a queue or a person can hold it."""


class AsyncOutbox:
    """Appends messages on connections of the drivers and of SQLAlchemy. Holds nothing; share it freely."""

    def __init__(self, clock: Clock = SYSTEM, *, observers: Iterable[MessageObserver] = ()) -> None:
        self._clock = clock
        self._observers = MessageObservers(observers)

    async def append(self, connection: Any, messages: Message | Iterable[Message]) -> list[str]:
        """Write `messages` in the open transaction, by one statement however many; returns their ids.

        A message whose id is in the outbox already is left as it is. Raises NotStorable for one that cannot be
        kept, ConfigurationError on a connection that would commit at once; the driver's own errors pass through.
        """
        if self._observers:
            messages = self._observers.created(messages)
        sql = await AsyncSql.on(connection)
        ids = await async_carry(append(sql, messages, self._clock.offset), sql)
        WAKEUPS.hint()
        return ids

    async def migrate(self, connection: Any) -> str:
        """Create or upgrade the tables of messaging in this database; commit afterwards."""
        sql = await AsyncSql.on(connection)
        return await async_carry(making(sql.dialect), sql)


class AsyncInbox:
    """Handles messages once for `consumer`, on the records of `once`."""

    def __init__(self, once: AsyncOnce, consumer: str, *, keep: float = KEEP) -> None:
        self._once = once
        self._consumer = consumer
        self._keep = keep

    async def handle(self, connection: Any, message: Message, effect: Callable[[Message], Awaitable[Any]]) -> bool:
        """Run `effect` in the open transaction unless this id was handled; False if it was. The caller commits.

        Mark and effect commit together or not at all. An error of `effect` passes through: roll back.
        """
        async with self._once.joined(
            connection, message.topic, key=message.id, scope=self._consumer, keep=self._keep
        ) as attempt:
            if not attempt.replayed:
                await effect(message)
            return not attempt.replayed

    async def attempt(self, message: Message, effect: Callable[[Message], Awaitable[Any]], **options: Any) -> bool:
        """The same for an effect outside the database; `options` are those of Policy, and unknown= must be said.

        Raises OutcomeUnknown, OperationInProgress and the like; see AsyncOnce.attempt.
        """
        async with self._once.attempt(
            message.topic, key=message.id, scope=self._consumer, **{"keep": self._keep, **options}
        ) as attempt:
            if not attempt.replayed:
                await effect(message)
            return not attempt.replayed
