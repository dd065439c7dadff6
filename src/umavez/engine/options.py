"""What may be said about an operation, typed: a misspelt option is an error in the editor, and a clear one later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from inspect import iscoroutinefunction, signature
from typing import Any, TypedDict

from umavez.core.encoding.codec import Codec
from umavez.core.policy import Exceptions, Mismatch, Unknown
from umavez.errors import ConfigurationError

Seconds = float | timedelta


class _Common(TypedDict, total=False):
    lease: Seconds
    keep: Seconds
    max_retries: int
    max_body: int
    heartbeat: bool
    patience: Seconds
    four_eyes: bool
    final: Exceptions
    free: Exceptions
    mismatch: Mismatch
    codec: Codec
    replay: Callable[[Any], Any]
    reference: Callable[[Any], Any]


class JoinedOptions(_Common, total=False):
    """Options of a joined block, which has a `wait` of its own."""

    unknown: Unknown


class Options(JoinedOptions, total=False):
    """Options of a call. Without any, those declared under the operation's name hold. See Policy for each."""

    wait: Seconds


class _Waiting(_Common, total=False):
    wait: Seconds


class Declaration(_Waiting):
    """Options of a declaration, which must say what an unknown outcome means."""

    unknown: Unknown


def refuse_awaited(operation: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for an option whose coroutine nobody would await: it would be taken for the answer."""
    for option in ("unknown", "replay"):
        if is_awaited(options.get(option)):
            raise ConfigurationError(
                f"{operation}: {option}= is a coroutine function, which Once does not await; make it def, "
                "or declare the operation with AsyncOnce."
            )
    async_refuse_awaited(operation, options)


def async_refuse_awaited(operation: str, options: Mapping[str, Any]) -> None:
    """As `refuse_awaited`; AsyncOnce awaits most of them."""
    if is_awaited(options.get("reference")):
        raise ConfigurationError(f"{operation}: reference= is a coroutine function, which nobody awaits; make it def.")


def is_awaited(function: Any) -> bool:
    """Whether what `function` gives has to be awaited."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  # its flags are asked for, not whether it is there


def takes(function: Any, many: int) -> bool:
    """Whether `function` can be called with so many arguments; what does not say what it takes is believed."""
    try:
        signature(function).bind(*range(many))
    except TypeError:
        return False
    except ValueError:
        return True
    return True
