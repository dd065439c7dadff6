"""Observing: who is told what of the engine's work. Who listens is sorted out once; where nobody does, nothing is made.

An observer is a callable that takes an Event. It may have more to say about what it wants to hear, by having methods of
these names; the engine looks for them when it is made:

- `started(key, attempt, fence)` and `ended(token, outcome, error)`: around the code of each attempt; see Follower;
- `answered(store, verb, seconds, error)`: each time the store was asked; see Clerk;
- `told_http(operation, answer)`: each answer of a web shell to a request with a key;
- `traceparent()`: asked before each claim, for where it came from, which is kept with the record.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from umavez.core.key import Key
from umavez.core.telling.origin import Origin
from umavez.engine.options import is_awaited
from umavez.engine.outcome import Event, Observer
from umavez.errors import ConfigurationError

T = TypeVar("T")
LOG = logging.getLogger("umavez")

UNRECORDED = "unrecorded"
"""The outcome of a run whose end was not written: the store was away, or the caller's transaction was rolled back."""


class Follower(Protocol):
    """An observer that follows runs. Both are called in the thread or task in which the code runs."""

    def started(self, key: Key, attempt: int, fence: int) -> object:
        """The code of an attempt starts; what is returned comes back with its end."""
        ...

    def ended(self, token: Any, outcome: str, error: str) -> None:
        """It is over: `outcome` is a word of KINDS, or UNRECORDED; `error` is the type of what ended it, if one did."""
        ...


class Clerk(Protocol):
    """An observer that hears of every time the store was asked."""

    def answered(self, store: str, verb: str, seconds: float, error: BaseException | None) -> None:
        """The store of this name was asked to do this, and answered, or failed with a StoreError."""
        ...


class Run(Protocol):
    """An attempt, as those who follow runs see it."""

    key: Key
    number: int
    fence: int
    lost: bool
    ended_as: str
    failed_with: str
    followed: Any


class Observers:
    """All who listen. Calling it tells them of an event, which is made once, and only if there is somebody."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        given: Any = observers
        if callable(given) or not all(map(_listens, given := tuple(given))):
            raise ConfigurationError("observers= takes a list of plain callables that take an Event; give such a list.")
        self.all: tuple[Observer, ...] = given
        self.followers: tuple[Any, ...] = tuple(one for one in self.all if hasattr(one, "started"))
        self.tracers: tuple[Any, ...] = tuple(one for one in self.all if hasattr(one, "traceparent"))
        self.clerks: tuple[Any, ...] = tuple(one for one in self.all if hasattr(one, "answered"))

    def __call__(
        self,
        kind: str,
        key: Key,
        attempt: int,
        seconds: float = 0.0,
        fence: int = 0,
        error: str = "",
        origin: Origin | None = None,
    ) -> None:
        """Tell every observer."""
        if not self.all:
            return
        event = Event(kind, key, attempt, seconds, fence, error, origin)
        for observer in self.all:
            try:
                observer(event)
            except Exception:  # a counter that fails must not fail the operation it counts
                LOG.exception("An observer failed at %s", kind)

    def trace(self) -> str | None:
        """The trace that is current, as W3C traceparent; of several observers the first that has one tells."""
        return next(filter(None, (_kept(tracer.traceparent) for tracer in self.tracers)), None)

    def start(self, run: Run) -> None:
        """The code of `run` starts."""
        run.followed = [
            (follower, _kept(follower.started, run.key, run.number, run.fence)) for follower in self.followers
        ]

    def end(self, run: Run) -> None:
        """The code of `run` is over. Called while the error that ended it, if one did, is on its way."""
        outcome = run.ended_as or ("lost" if run.lost else UNRECORDED)
        leaving = None if outcome == "succeeded" else sys.exc_info()[1]
        error = run.failed_with or ("" if leaving is None else error_type(leaving))
        for follower, token in reversed(run.followed):
            _kept(follower.ended, token, outcome, error)
        run.followed = ()

    def record_answer(self, store: str, verb: str, seconds: float, error: BaseException | None) -> None:
        """The store was asked, and this is what came of it."""
        for clerk in self.clerks:
            _kept(clerk.answered, store, verb, seconds, error)

    def tellers(self) -> tuple[Callable[[str, str], None], ...]:
        """Those who want to hear of a web shell's answers."""
        return tuple(one.told_http for one in self.all if hasattr(one, "told_http"))


def _listens(one: object) -> bool:
    """Whether it can be told of an event: nobody awaits a coroutine, and a class would make an object of each."""
    return callable(one) and not isinstance(one, type) and not is_awaited(one)


def _kept(tell: Callable[..., T], *words: Any) -> T | None:
    """What `tell` gives; its failure is logged, and is nobody else's."""
    try:
        return tell(*words)
    except Exception:
        LOG.exception("An observer failed at %s", getattr(tell, "__name__", tell))
        return None


def name_of(store: object) -> str:
    """What kind of store it is, in a word: sqlite, postgres, mariadb, redis, memory; of others, their class."""
    path = type(store).__module__.split(".")
    return path[2] if path[:2] == ["umavez", "stores"] else type(store).__name__


@lru_cache(maxsize=100)
def shaped(kind: type[T], like: type[Any]) -> type[T]:
    """A subclass of `kind`, which stands around a `like` as `plain`, with all that `like` has and `kind` has not.

    What a store can do beyond its verbs is asked of its class (isinstance with a protocol): `__getattr__` is not heard.
    """
    more = [name for name in dir(like) if not name.startswith("_") and not hasattr(kind, name)]
    members: dict[str, Any] = {name: property(_of_plain(name)) for name in more}
    return type(kind.__name__, (kind,), members | {"__module__": kind.__module__})


def _of_plain(name: str) -> Callable[[Any], Any]:
    return lambda observed: getattr(observed.plain, name)


def error_type(error: BaseException) -> str:
    """The class of `error` with its module, as traces name it; one of Python's own without."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
