"""Inbox and AsyncInbox: each message id is handled once per consumer, however often it is delivered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from umavez.aio import AsyncOnce
from umavez.messaging.message import Message
from umavez.once import Once

KEEP = 30 * 24 * 3600.0
"""Seconds that a handled id is remembered. A message may come again for as long as a queue or a person can hold it."""


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


class AsyncInbox:
    """Handles messages once for `consumer`, on the records of `once`, awaited."""

    def __init__(self, once: AsyncOnce, consumer: str, *, keep: float = KEEP) -> None:
        self._once = once
        self._consumer = consumer
        self._keep = keep

    async def handle(self, connection: Any, message: Message, effect: Callable[[Message], Awaitable[Any]]) -> bool:
        """See Inbox.handle."""
        async with self._once.joined(
            connection, message.topic, key=message.id, scope=self._consumer, keep=self._keep
        ) as attempt:
            if not attempt.replayed:
                await effect(message)
            return not attempt.replayed

    async def attempt(self, message: Message, effect: Callable[[Message], Awaitable[Any]], **options: Any) -> bool:
        """See Inbox.attempt."""
        async with self._once.attempt(
            message.topic, key=message.id, scope=self._consumer, **{"keep": self._keep, **options}
        ) as attempt:
            if not attempt.replayed:
                await effect(message)
            return not attempt.replayed
