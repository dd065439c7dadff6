"""MessageObserver: who is told of messages on their way. Give it to Outbox, Relay and Consumer as `observers`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from umavez.engine.observing import error_type
from umavez.engine.traces import trace_fields
from umavez.messaging.broker import Delivery
from umavez.messaging.message import Message

T = TypeVar("T")
LOG = logging.getLogger("umavez")


class MessageObserver:
    """Hears nothing; a subclass overrides what it wants to hear. It must be quick; what it raises is only logged."""

    def created(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Messages are about to be written to the outbox: these go in their place, and may have more headers."""
        return messages

    def sending(self, messages: Sequence[Message]) -> object:
        """A relay hands these to the broker; what is returned comes back when that is over."""

    def sent(self, token: Any, published: Sequence[Message], error: BaseException | None) -> None:
        """It is over: these are the broker's now; or there was no answer, because of `error`."""

    def received(self, subscriber: str, message: Message, attempts: int) -> object:
        """A handler starts; what is returned comes back with its end. Called in the handler's task."""

    def handled(self, token: Any, outcome: str, error: BaseException | None) -> None:
        """It has ended: done, failed, away (something it needs was not there) or dead (it is put aside)."""

    def settling(self, subscriber: str, messages: Sequence[Message], how: str) -> object:
        """The broker is told what became of deliveries: finish, postpone, wait out or bury. It comes back as above."""

    def settled(self, token: Any, error: BaseException | None) -> None:
        """The broker has taken it down, or not, because of `error`: they come again."""


class MessageObservers:
    """All who listen to one outbox, relay or consumer; false where nobody does."""

    def __init__(self, observers: Iterable[MessageObserver] = ()) -> None:
        self._all = tuple(observers)

    def __bool__(self) -> bool:
        return bool(self._all)

    def created(self, messages: Message | Iterable[Message]) -> Sequence[Message]:
        """The messages as they are to be written."""
        given: Sequence[Message] = [messages] if isinstance(messages, Message) else list(messages)
        for observer in self._all:
            changed = _kept(observer.created, given)
            given = given if changed is None else changed
        return given

    def sending(self, messages: Sequence[Message]) -> list[Any]:
        """What each gave at the start; to be handed back to `sent`."""
        return [_kept(observer.sending, messages) for observer in self._all]

    def sent(self, tokens: list[Any], published: Sequence[Message], error: BaseException | None = None) -> None:
        """The broker has answered, or not."""
        for observer, token in zip(self._all, tokens, strict=False):
            _kept(observer.sent, token, published, error)

    def received(self, subscriber: str, message: Message, attempts: int) -> list[Any]:
        """What each gave at the start; to be handed back to `handled`."""
        return [_kept(observer.received, subscriber, message, attempts) for observer in self._all]

    def handled(self, tokens: list[Any], outcome: str, error: BaseException | None = None) -> None:
        """The handler has ended."""
        for observer, token in zip(reversed(self._all), reversed(tokens), strict=False):
            _kept(observer.handled, token, outcome, error)

    @contextmanager
    def settling(self, subscriber: str, deliveries: Sequence[Delivery], how: str) -> Iterator[None]:
        """Around what tells the broker of the fate of deliveries."""
        if not self._all:
            yield
            return
        messages = [delivery.message for delivery in deliveries]
        tokens = [_kept(observer.settling, subscriber, messages, how) for observer in self._all]
        trouble: BaseException | None = None
        try:
            yield
        except BaseException as error:
            trouble = error
            raise
        finally:
            for observer, token in zip(self._all, tokens, strict=True):
                _kept(observer.settled, token, trouble)


def fields(event: str, error: BaseException | None = None, **told: Any) -> dict[str, Any]:
    """What stands beside a line of the log (`extra=`): which event, about what, the error's type, the current trace.

    Never what an error says or a message holds.
    """
    kind = {} if error is None else {"error_type": error_type(error)}
    return {"event": f"umavez.{event}", **told, **kind, **trace_fields()}


def _kept(tell: Callable[..., T], *words: Any) -> T | None:
    """What `tell` gives; its failure is logged, and is nobody else's."""
    try:
        return tell(*words)
    except Exception:
        LOG.exception("An observer of messages failed at %s", tell.__name__)
        return None
