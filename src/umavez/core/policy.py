"""Policy: what an operation says about itself, and the answers that a far side can give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from numbers import Integral, Real
from typing import Any, Literal

from umavez.core.record import Millis
from umavez.errors import ConfigurationError, NotDeclared, UmavezError


@dataclass(frozen=True, slots=True)
class Happened:
    """The far side has it: `value` is what the operation would have returned."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class NotHappened:
    """The far side never did it: the operation may run again."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """The far side gave no usable answer: the outcome stays unknown, to be asked again later."""

    reason: str = ""


Answer = Happened | NotHappened | CannotTell
Ask = Callable[..., Any]
"""Asks the far side whether an attempt took effect; returns an `Answer` (or an awaitable of one)."""

Unknown = Literal["rerun", "hold"] | Ask
Mismatch = Literal["reject", "replay"]
Exceptions = tuple[type[BaseException], ...]
FOREVER = 100 * 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How one operation is to be treated. Durations are seconds here and milliseconds inside.

    unknown: what to do when an attempt ended without an answer: "rerun" (the far side dedupes on our
        key, or repeating is harmless), "hold" (a human decides), or a callable that asks the far side.
    lease: how long a claim lasts without a heartbeat. keep: how long an outcome is replayed, counted
        from completion. max_retries: how many attempts may follow a first that failed.
    wait: how long a caller waits for a running attempt before OperationInProgress.
    final: exceptions that are the outcome, stored and raised again on replay.
    free: exceptions that prove nothing happened, so that the key is free for another attempt.
    mismatch: "reject" a key used with other content (KeyReused) or "replay" it all the same.
    max_body: longest stored value in bytes; a longer one is returned once and not kept.
    heartbeat: whether the lease is renewed while the code runs.
    patience: how long a callable unknown= may take to answer; after that the outcome stays unknown.
    four_eyes: nobody decides about it alone: in the console a second person has to agree, the command line refuses.
    """

    unknown: Unknown
    lease: float = 30.0
    keep: float = 24 * 3600.0
    max_retries: int = 3
    wait: float = 0.0
    final: Exceptions = ()
    free: Exceptions = ()
    mismatch: Mismatch = "reject"
    max_body: int = 1_000_000
    heartbeat: bool = True
    patience: float = 30.0
    four_eyes: bool = False
    lease_ms: Millis = field(init=False)
    keep_ms: Millis = field(init=False)

    def __post_init__(self) -> None:
        if not callable(self.unknown) and self.unknown not in ("rerun", "hold"):
            raise NotDeclared(f'unknown={self.unknown!r} is not one of "rerun", "hold" or a callable that asks.')
        if self.mismatch not in ("reject", "replay"):
            raise ConfigurationError(f'mismatch={self.mismatch!r} is not "reject" or "replay".')
        self._check_numbers()
        # Kept for less than a millisecond, an outcome is not kept at all, and a repeat would run.
        if not (0.05 <= self.lease < FOREVER and 0.001 <= self.keep < FOREVER and 0 <= self.wait < FOREVER):
            raise ConfigurationError(
                "lease must be at least 0.05 s, keep at least 0.001 s, wait not below 0, all under 100 years."
            )
        if not 0 < self.patience < FOREVER:
            raise ConfigurationError("patience must be above 0 s and under 100 years.")
        if self.max_retries < 0 or self.max_body < 0:
            raise ConfigurationError("max_retries and max_body must not be negative.")
        for option in ("final", "free"):
            object.__setattr__(self, option, _kinds(option, getattr(self, option)))
        # Computed here, once, because every call needs them.
        object.__setattr__(self, "lease_ms", int(self.lease * 1000))
        object.__setattr__(self, "keep_ms", int(self.keep * 1000))

    def _check_numbers(self) -> None:
        """Raise ConfigurationError for what cannot be counted with: retries up to NaN would never end."""
        for option in ("lease", "keep", "wait", "patience"):
            if not isinstance(given := getattr(self, option), Real):
                raise ConfigurationError(f"{option}= takes seconds or a timedelta; {given!r} is neither.")
        for option in ("max_retries", "max_body"):
            if not isinstance(given := getattr(self, option), Integral):
                raise ConfigurationError(f"{option}= takes a whole number; {given!r} is none.")

    @property
    def asks(self) -> bool:
        """Whether somebody can be asked about an unknown outcome."""
        return callable(self.unknown)

    def reruns(self) -> bool:
        """Whether repeating an attempt of unknown outcome is declared safe."""
        return self.unknown == "rerun"

    def holds(self) -> bool:
        """Whether an unknown outcome waits for somebody to decide."""
        return self.unknown == "hold"


def _kinds(option: str, given: Any) -> Exceptions:
    """One exception type, or any collection of them, as a tuple."""
    kinds = (given,) if isinstance(given, type) else tuple(given) if isinstance(given, Iterable) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ConfigurationError(f"{option}= takes exception types; {kind!r} is none.")
    return kinds


OPTIONS = tuple(option.name for option in fields(Policy) if option.init)
"""What an operation may say about itself, by name."""


def named(error: BaseException, kinds: Exceptions) -> bool:
    """Whether `kinds` (of final= or free=) name `error`.

    An error of umavez's own must be named as such: `Exception` means what the operation's code raises, and a store that
    failed after the effect proves neither that it is final nor that nothing happened.
    """
    if isinstance(error, UmavezError):
        return any(issubclass(kind, UmavezError) and isinstance(error, kind) for kind in kinds)
    return isinstance(error, kinds)


def declare(operation: str, options: Mapping[str, Any]) -> Policy:
    """The policy that `options` describe. Raises NotDeclared when they leave out `unknown`."""
    if strange := sorted(options.keys() - set(OPTIONS)):
        raise ConfigurationError(
            f"{operation}: unknown option {strange[0]!r}; known are "
            f"{', '.join(sorted({*OPTIONS, 'codec', 'reference', 'replay'}))}."
        )
    if options.get("unknown") is None:
        raise NotDeclared(
            f'{operation} does not say what an unknown outcome means: pass unknown="rerun" (repeating is harmless), '
            'unknown="hold" (a human decides) or unknown=<callable that asks the far side>.'
        )
    return Policy(**{name: _seconds(value) for name, value in options.items()})


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
