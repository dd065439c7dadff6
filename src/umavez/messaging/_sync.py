# Written by tools/sync.py from src/umavez/messaging/_async.py: change that, then run `make format`.
"""Outbox and inbox for threads: messages are there exactly if the change is, and each is handled once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from umavez._sync.once import Once
from umavez.clock import SYSTEM, Clock
from umavez.messaging.message import Message
from umavez.messaging.observing import MessageObserver, MessageObservers
from umavez.messaging.tables.causes import making
from umavez.messaging.tables.rows import append
from umavez.messaging.wakeups import WAKEUPS
from umavez.sql.connection import Sql
from umavez.sql.flow import carry

KEEP = 30 * 24 * 3600.0
"""Seconds that a handled id is remembered. A message may come again for as long as a queue or a person can hold it."""


class Outbox:
    """Appends messages on connections of the drivers and of SQLAlchemy. Holds nothing; share it freely."""

    def __init__(self, clock: Clock = SYSTEM, *, observers: Iterable[MessageObserver] = ()) -> None:
        self._clock = clock
        self._observers = MessageObservers(observers)

    def append(self, connection: Any, messages: Message | Iterable[Message]) -> list[str]:
        """Write `messages` in the open transaction, by one statement however many; returns their ids.

        A message whose id is in the outbox already is left as it is. Raises NotStorable for one that cannot be
        kept, ConfigurationError on a connection that would commit at once; the driver's own errors pass through.
        """
        if self._observers:
            messages = self._observers.created(messages)
        sql = Sql.on(connection)
        ids = carry(append(sql, messages, self._clock.offset), sql)
        WAKEUPS.hint()
        return ids

    def migrate(self, connection: Any) -> str:
        """Create or upgrade the tables of messaging in this database; commit afterwards."""
        sql = Sql.on(connection)
        return carry(making(sql.dialect), sql)


class Inbox:
    """Handles messages once for `consumer`, on the records of `once`."""

    def __init__(self, once: Once, consumer: str, *, keep: float = KEEP) -> None:
        self._once = once
        self._consumer = consumer
        self._keep = keep

    def handle(self, connection: Any, message: Message, effect: Callable[[Message], Any]) -> bool:
        """Run `effect` in the open transaction unless this id was handled; False if it was. The caller commits.

        Mark and effect commit together or not at all. An error of `effect` passes through: roll back.
        """
        with self._once.joined(
            connection, message.topic, key=message.id, scope=self._consumer, keep=self._keep
        ) as attempt:
            if not attempt.replayed:
                effect(message)
            return not attempt.replayed

    def attempt(self, message: Message, effect: Callable[[Message], Any], **options: Any) -> bool:
        """The same for an effect outside the database; `options` are those of Policy, and unknown= must be said.

        Raises OutcomeUnknown, OperationInProgress and the like; see Once.attempt.
        """
        with self._once.attempt(
            message.topic, key=message.id, scope=self._consumer, **{"keep": self._keep, **options}
        ) as attempt:
            if not attempt.replayed:
                effect(message)
            return not attempt.replayed
