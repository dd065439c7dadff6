"""AsyncOperation: a function that runs once per key."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from types import MethodType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast, overload

from umavez.core.protocol import Intent
from umavez.engine.binding import Binder, in_class_body
from umavez.engine.declaration import Plan
from umavez.engine.outcome import Outcome

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")


class Performer(Protocol):
    """The engine, as an operation sees it."""

    async def perform(
        self, plan: Plan, intent: Intent, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Outcome[Any]:
        """Carry out the call once."""
        ...


class AsyncOperation(Protocol[P, T]):
    """A declared operation: a function with its own signature, and with `once` and `key_of` beside it.

    In the body of a class it is a method, and so are they.
    """

    plan: Plan

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run once for this key; a repeat returns the same value, of the same type."""
        ...

    async def once(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """As calling it, with whether it was replayed and which attempt it was."""
        ...

    def key_of(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The key's value for these arguments, to look the record up."""
        ...

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: AsyncOperation[Concatenate[S, Q], T], instance: S, owner: type | None = None
    ) -> AsyncOperation[Q, T]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The operation as a method of `instance`."""
        ...


def async_operation_of(
    performer: Performer, plan: Plan, binder: Binder, function: Callable[P, Awaitable[T]]
) -> AsyncOperation[P, T]:
    """`function` as an operation. A plain function gives a plain function, so that frameworks see what they expect."""
    made = AsyncMethod(performer, plan, binder, function) if in_class_body(function) else None
    return cast("AsyncOperation[P, T]", made or _function(performer, plan, binder, function, ()))


class AsyncMethod:
    """An operation in the body of a class: each instance sees it as its own function, with `once` and `key_of`."""

    def __init__(self, performer: Performer, plan: Plan, binder: Binder, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._parts = performer, plan, binder, function
        self._unbound = _function(*self._parts, ())

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self._unbound if instance is None else _function(*self._parts, (instance,))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # As a staticmethod or a classmethod it is called without being asked for an instance.
        return self._unbound(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unbound, name)


def _function(
    performer: Performer, plan: Plan, binder: Binder, function: Callable[..., Any], instance: tuple[Any, ...]
) -> Any:
    """`function` as it is called, with its `instance` before the arguments where it has one."""
    shown = MethodType(function, *instance) if instance else function

    @functools.wraps(shown)
    async def operation(*args: Any, **kwargs: Any) -> Any:
        args = instance + args
        outcome = await performer.perform(plan, binder.intent(args, kwargs), function, args, kwargs)
        return outcome.value

    @functools.wraps(shown)
    async def once(*args: Any, **kwargs: Any) -> Outcome[Any]:
        args = instance + args
        return await performer.perform(plan, binder.intent(args, kwargs), function, args, kwargs)

    def key_of(*args: Any, **kwargs: Any) -> str:
        return binder.intent(instance + args, kwargs).key.value

    made: Any = operation
    made.plan, made.once, made.key_of = plan, once, key_of
    return made
