"""Operation: a function that runs once per key. `aio_operation.py` is its twin for coroutine functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, Protocol, TypeVar

from umavez.core.protocol import Intent
from umavez.outcome import Outcome
from umavez.plan import Binder, Plan

T = TypeVar("T")


class Performer(Protocol):
    """The engine, as an operation sees it."""

    def perform(
        self, plan: Plan, intent: Intent, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Outcome[Any]:
        """Carry out the call once."""
        ...


class Operation(Generic[T]):
    """A declared operation. Calling it gives the value; `once` gives the Outcome with it."""

    def __init__(self, performer: Performer, plan: Plan, binder: Binder, function: Callable[..., T]) -> None:
        functools.update_wrapper(self, function)
        self.plan = plan
        self._performer = performer
        self._binder = binder
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        """Run once for this key; a repeat returns the same value, of the same type."""
        intent = self._binder.intent(args, kwargs)
        outcome: Outcome[T] = self._performer.perform(self.plan, intent, self._function, args, kwargs)
        return outcome.value

    def once(self, *args: Any, **kwargs: Any) -> Outcome[T]:
        """As calling it, with whether it was replayed and which attempt it was."""
        intent = self._binder.intent(args, kwargs)
        return self._performer.perform(self.plan, intent, self._function, args, kwargs)

    def key_of(self, *args: Any, **kwargs: Any) -> str:
        """The key's value for these arguments, to look the record up."""
        return self._binder.intent(args, kwargs).key.value

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)
