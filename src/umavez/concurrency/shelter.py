"""Shelter: where a call goes that an exception from a signal handler must not cut in two.

A soft time limit or an alarm raises between any two instructions of the main thread: after a lock was taken and before
anybody noted it, between a statement and its answer. No order of `try` and `finally` closes every such gap. So while
a handler for such a signal stands, what the main thread asks of a store is done by another thread, which signals never
interrupt; the main thread only waits. Interrupted, it leaves, and the call is finished without it.

Python's own handler of SIGINT stands in every process, and a thread for every call would be too dear: KeyboardInterrupt
is held back until the call is over, which ends by itself within the store's time-outs.
"""

from __future__ import annotations

import signal
import time
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from queue import SimpleQueue
from threading import main_thread
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from umavez.concurrency.after_fork import reset_after_fork

P = ParamSpec("P")
S = TypeVar("S")
A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

LIMITS = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF", "SIGXCPU", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
)
"""The signals by which code is told that its time is over, or to begin anew, and what a handler may use the engine at.
SIGINT is one, too, where somebody handles it himself."""
INSIST = 3.0
"""Seconds after which another SIGINT is not held back any more: somebody wants to leave a store that is silent."""

# The same without the detour through an enumeration, which costs more than the look at a record that follows.
_handler_of: Callable[[int], Any] = import_module("_signal").getsignal
_handle: Callable[[int, Any], Any] = import_module("_signal").signal
_INTERRUPT = int(signal.SIGINT)
_WATCHED = (*map(int, LIMITS), _INTERRUPT)
_USUAL = [*(int(signal.SIG_DFL) for _ in LIMITS), signal.default_int_handler]
"""The handlers of _WATCHED where nobody has set one: almost everywhere, so this is asked first, and at once."""


def exposed() -> bool:
    """Whether this is the thread that handlers interrupt, and there is one of somebody's own that may raise."""
    if get_ident() != _SHELTER.main or [*map(_handler_of, _WATCHED)] == _USUAL:
        return False
    return _may_raise(_handler_of(_INTERRUPT))


def _may_raise(interrupt: Any) -> bool:
    """Whether a handler of somebody's own stands; `interrupt` is that of SIGINT."""
    if any(map(callable, map(_handler_of, LIMITS))):
        return True
    return interrupt is not signal.default_int_handler and callable(interrupt) and type(interrupt) is not _HeldBack


def sheltered(method: Callable[P, T]) -> Callable[P, T]:
    """`method`, done from beginning to end whatever a signal handler raises meanwhile."""

    @wraps(method)
    def call(*args: P.args, **named: P.kwargs) -> T:
        if get_ident() != _SHELTER.main:
            return method(*args, **named)
        if [*map(_handler_of, _WATCHED)] != _USUAL:
            interrupt = _handler_of(_INTERRUPT)
            if _may_raise(interrupt):
                return _SHELTER.run(lambda: method(*args, **named))
            if interrupt is not signal.default_int_handler:
                return method(*args, **named)
        _HELD_BACK.since = None
        _handle(_INTERRUPT, _HELD_BACK)
        try:
            return method(*args, **named)
        finally:
            _handle(_INTERRUPT, signal.default_int_handler)
            if _HELD_BACK.since is not None:
                raise KeyboardInterrupt

    return call


def sheltered_swap(method: Callable[[S, A, B], T]) -> Callable[[S, A, B], T]:
    """`sheltered` for the one method that every call comes by.

    Its arguments are named: gathered and spread again they cost as much as all that is asked about signals.
    """
    otherwise = sheltered(method)

    @wraps(method)
    def call(self: S, expected: A, draft: B) -> T:
        if get_ident() != _SHELTER.main:
            return method(self, expected, draft)
        if [*map(_handler_of, _WATCHED)] != _USUAL:
            return otherwise(self, expected, draft)
        _HELD_BACK.since = None
        _handle(_INTERRUPT, _HELD_BACK)
        try:
            return method(self, expected, draft)
        finally:
            _handle(_INTERRUPT, signal.default_int_handler)
            if _HELD_BACK.since is not None:
                raise KeyboardInterrupt

    return call


class _HeldBack:
    """A handler that only notes that it was called. One is enough: it stands for one call of the main thread."""

    __slots__ = ("since",)

    def __init__(self) -> None:
        self.since: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.since is None:
            self.since = now
        elif now - self.since > INSIST:
            signal.default_int_handler(number, frame)


_HELD_BACK = _HeldBack()


def async_sheltered_swap(method: Callable[[S, A, B], T]) -> Callable[[S, A, B], T]:
    """`method` as it is; see async_sheltered."""
    return method


def async_sheltered(method: Callable[P, T]) -> Callable[P, T]:
    """`method` as it is: where a loop runs, signals are the loop's to handle, and no thread can await for a task."""
    return method


class _Asked:
    """A call, and what came of it."""

    __slots__ = ("answer", "awake", "call", "error")

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.answer: Any = None
        self.error: BaseException | None = None
        self.awake = allocate_lock()
        self.awake.acquire()


class _Shelter:
    """One thread for the main one. In turn, so that what comes after an interrupted call does not overtake it."""

    def __init__(self) -> None:
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """The thread is the parent's, and the one that forked is the main one now."""
        self.main = main_thread().ident
        self._calls: SimpleQueue[_Asked] = SimpleQueue()
        self._threads: list[int] = []

    def run(self, call: Callable[[], T]) -> T:
        """What `call` returns or raises."""
        asked = _Asked(call)
        self._calls.put(asked)
        if not self._threads:
            # One step of the interpreter: begun and not noted, or noted and not begun, it would be two or none.
            self._threads.extend(map(start_new_thread, (_work,), ((self._calls,),)))
        asked.awake.acquire()
        if asked.error is not None:
            raise asked.error
        answer: T = asked.answer
        return answer


def _work(calls: SimpleQueue[_Asked]) -> None:
    while True:
        asked = calls.get()
        try:
            asked.answer = asked.call()
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the caller's
            asked.error = error
        asked.awake.release()
        del asked  # while it waits, the thread keeps nothing of the last call alive


_SHELTER = _Shelter()
