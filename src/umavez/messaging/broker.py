"""Broker: the small protocol between the relay, the consumers and whatever carries the messages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from umavez.errors import UmavezError
from umavez.messaging.message import Message


class BrokerUnavailable(UmavezError):
    """The broker cannot be reached, or went away before it answered; what was sent may have arrived."""


class Poison(UmavezError):
    """Raised by a handler: this message can never be handled, so bury it now and keep the reason."""


class Delivery(NamedTuple):
    """A message handed to a subscriber. `attempts` counts this one; `tag` is the broker's own business."""

    message: Message
    attempts: int
    tag: Any


class Subscription(Protocol):
    """The deliveries of one subscriber. Whatever is neither finished nor postponed comes again."""

    async def take(self, limit: int, wait: float) -> list[Delivery]:
        """Up to `limit` deliveries, as soon as there is one, none after `wait` seconds. Raises BrokerUnavailable."""
        ...

    async def finish(self, deliveries: Sequence[Delivery]) -> None:
        """These were handled; they do not come again unless the word is lost on the way."""
        ...

    async def postpone(self, delivery: Delivery, pause: float, reason: str) -> None:
        """Bring it again after `pause` seconds."""
        ...

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Put it aside as dead, with the reason."""
        ...

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """These were not begun; let somebody else have them at once."""
        ...

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """These are still being handled."""
        ...

    async def close(self) -> None:
        """No more deliveries. Safe to repeat."""
        ...


class Broker(Protocol):
    """Takes messages over and hands them to subscribers, at least once."""

    async def publish(self, messages: Sequence[Message]) -> Sequence[str | None]:
        """Hand over `messages`; for each None once it is durably the broker's, or why it was refused.

        Raises BrokerUnavailable when no answer can be had for some: they may or may not have arrived.
        """
        ...

    async def subscribe(self, subscriber: str, topics: Sequence[str], *, prefetch: int = 20) -> Subscription:
        """The deliveries of `subscriber`, who gets every message of `topics` from now on, whether or not it runs."""
        ...

    async def close(self) -> None:
        """Give connections back. Safe to repeat."""
        ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after a failure, and when to give up. Seconds."""

    first: float = 1.0
    factor: float = 2.0
    cap: float = 300.0
    limit: int = 12
    """Attempts after which a message is dead. The default waits for about 25 minutes in all."""

    def pause(self, attempts: int) -> float:
        """Seconds after the failure of attempt number `attempts`; between half of the step and all of it."""
        step = min(self.cap, self.first * self.factor ** min(max(attempts - 1, 0), 60))
        return step * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, guards nothing

    def spent(self, attempts: int) -> bool:
        """Whether attempt number `attempts` was the last."""
        return attempts >= self.limit


USUAL = Backoff()
"""For a message that was refused or failed."""

OUTAGE = Backoff(first=0.2, cap=10.0)
"""For a broker or database that is away; its limit counts for nothing, an outage is waited out."""
