"""Binding: from the arguments of one call to its intent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from umavez.core.encoding.fingerprint import fingerprint
from umavez.core.protocol import Intent
from umavez.engine.declaration import ARGUMENTS, Plan, placed
from umavez.engine.options import is_awaited
from umavez.errors import ConfigurationError, NotStorable

_new = tuple.__new__  # see core/drafts.py, where its gain is told


def refuse_misfit(operation: str, function: Callable[..., Any]) -> None:
    """Raise ConfigurationError for a function that Once cannot run: its body would never be entered."""
    _refuse_generator(operation, function)
    if is_awaited(function):
        raise ConfigurationError(
            f"{operation}: this is a coroutine function; declare it with AsyncOnce, or make it def."
        )


def async_refuse_misfit(operation: str, function: Callable[..., Any]) -> None:
    """Raise ConfigurationError for a function that AsyncOnce cannot await."""
    _refuse_generator(operation, function)
    if not is_awaited(function):
        raise ConfigurationError(
            f"{operation}: AsyncOnce awaits coroutine functions; declare this one with Once, or make it async def."
        )


def _refuse_generator(operation: str, function: Callable[..., Any]) -> None:
    if not callable(function):
        raise ConfigurationError(f"{operation}: operation() declares a function, not a {type(function).__name__}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"{operation}: a generator has no one outcome to keep; return a value instead.")


def in_class_body(function: Callable[..., Any]) -> bool:
    """Whether `function` was defined in the body of a class, so that its first argument is no part of its meaning."""
    place = getattr(function, "__qualname__", "").rpartition(".")[0]
    return bool(place) and not place.endswith("<locals>")


class Binder:
    """Turns a call of `function` into an Intent: binds the arguments, computes key and fingerprint."""

    __slots__ = ("_fingerprint", "_first", "_key", "_names", "_plan", "_process", "_signature")

    def __init__(self, plan: Plan, function: Callable[..., Any], **makers: Any) -> None:
        self._plan = plan
        self._signature = _signature_of(plan.operation, function)
        names = list(self._signature.parameters)
        simple = all(
            parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in self._signature.parameters.values()
        )
        self._names = tuple(names) if simple else None
        self._first = names[0] if names[:1] in (["self"], ["cls"]) and in_class_body(function) else None
        self._key = _chosen(plan.operation, "key", makers["key"], names)
        meaning = makers["fingerprint"]
        self._fingerprint = (
            meaning if meaning in (None, ARGUMENTS) else _chosen(plan.operation, "fingerprint", meaning, names)
        )
        self._process = tuple(
            _chosen(plan.operation, name, makers[name], names) if callable(makers[name]) else makers[name]
            for name in ("process_instance", "activity")
        )

    def intent(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Intent:
        """The intent of one call. Raises TypeError as the function itself would, and InvalidKey."""
        if self._names is not None and not kwargs and len(args) == len(self._names):
            bound = dict(zip(self._names, args, strict=True))
        else:
            arguments = self._signature.bind(*args, **kwargs)
            arguments.apply_defaults()
            bound = arguments.arguments
        key = self._plan.key(self._key(bound))
        instance, activity = self._process
        if instance is not None or activity is not None:
            instance = placed("process_instance", instance(bound) if callable(instance) else instance)
            activity = placed("activity", activity(bound) if callable(activity) else activity)
        mark = None if self._fingerprint is None else self._meaning(bound)
        return _new(Intent, (key, mark, instance, activity, None))

    def _meaning(self, bound: dict[str, Any]) -> str:
        if self._fingerprint is ARGUMENTS:
            if self._first is not None:
                del bound[self._first]
            return _fingerprint_of(self._plan.operation, bound)
        return _fingerprint_of(self._plan.operation, self._fingerprint(bound))


def _signature_of(operation: str, function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        raise ConfigurationError(
            f"{operation}: {function!r} does not say what arguments it takes; declare a def that calls it."
        ) from None


def _fingerprint_of(operation: str, meaning: object) -> str:
    try:
        return fingerprint(meaning)
    except NotStorable as error:
        raise NotStorable(f"{operation}: {error}") from error


def _chosen(operation: str, option: str, maker: Any, names: list[str]) -> Callable[[dict[str, Any]], Any]:
    """`maker` as a function of the bound arguments: it gets those it names, or all if it takes `**kwargs`."""
    if not callable(maker) or is_awaited(maker):
        raise ConfigurationError(
            f"{operation}: {option}= must be a plain callable that takes the function's arguments by name."
        )
    parameters = inspect.signature(maker).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return lambda bound: maker(**bound)
    wanted = tuple(parameter.name for parameter in parameters)
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.name not in names and parameter.default is parameter.empty
    ]
    if missing:
        raise ConfigurationError(
            f"{operation}: {option}= asks for {missing[0]!r}, which the function does not take; "
            f"it takes {', '.join(names) or 'nothing'}."
        )
    if len(wanted) == 1 and wanted[0] in names:
        (only,) = wanted
        return lambda bound: maker(bound[only])
    return lambda bound: maker(**{name: bound[name] for name in wanted if name in bound})
