"""Broker: the small protocol between the relay, the consumers and whatever carries the messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from umavez.backoff import drawn, grown
from umavez.errors import UmavezError
from umavez.messaging.message import Message


class BrokerUnavailable(UmavezError):
    """The broker cannot be reached, or went away before it answered; what was sent may have arrived."""


class DatabaseAway(BrokerUnavailable):
    """The database that keeps the messages did not answer. It is waited out: no message is to blame."""


class Poison(UmavezError):
    """Raised by a handler: this message can never be handled, so bury it now and keep the reason."""


class Unanswered(Enum):
    """What there is to say of a message that was not sent, or whose answer did not come."""

    UNANSWERED = "unanswered"


UNANSWERED = Unanswered.UNANSWERED


class Hopeless(str):
    """Why a message can never be carried, however often it is sent."""

    __slots__ = ()


class NotNow(str):
    """Why the broker takes nothing at the moment; it says nothing against the message, which keeps its attempts."""

    __slots__ = ()


Answer = str | Unanswered | None
"""None: it is durably the broker's. Hopeless: never. NotNow: later. Other text: this one was refused, and why."""


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

    async def wait_out(self, delivery: Delivery, pause: float) -> None:
        """Bring it again after `pause` seconds, and do not count this attempt: an outage was to blame, not it."""
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

    async def publish(self, messages: Sequence[Message]) -> Sequence[Answer]:
        """Hand over `messages`; an answer for each.

        Those of one aggregate are handed over in their order, and what follows one that was not taken is not sent.
        Raises BrokerUnavailable when there is no answer at all: they may or may not have arrived.
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
        return drawn(grown(attempts, self.first, self.factor, self.cap), least=0.5)

    def spent(self, attempts: int) -> bool:
        """Whether attempt number `attempts` was the last."""
        return attempts >= self.limit


USUAL = Backoff()
"""For a message that was refused or failed."""

OUTAGE = Backoff(first=0.2, cap=10.0)
"""For a broker or database that is away; its limit counts for nothing, an outage is waited out."""
