"""Retry: when to try again, and after how long. Decisions without I/O; `Retry` and `AsyncRetry` carry them out.

Retry().run(lambda: client.get(url), repeatable=True)
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from umavez.backoff import drawn, grown
from umavez.concurrency.waiting import async_awaited
from umavez.core.policy import CannotTell, Happened, NotHappened
from umavez.errors import ConfigurationError
from umavez.failures import Phase, Trouble, trouble_of

T = TypeVar("T")
Classify = Callable[[BaseException], Trouble]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often and how far apart (seed 004 §5: three attempts, 1 s, doubled, at most 30 s).

    `jitter`: a pause is drawn between nothing and its full length, so that callers that failed together do not
    come back together. A far side that names its own pause with Retry-After is never asked sooner than that.
    `longest_wish`: a longer Retry-After than this ends the trying, for the caller has a life too.
    """

    attempts: int = 3
    first: float = 1.0
    factor: float = 2.0
    cap: float = 30.0
    jitter: bool = True
    longest_wish: float = 300.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.first < 0 or self.factor < 1 or self.cap < 0:
            raise ConfigurationError("Backoff needs attempts and factor of at least 1, and no negative time.")

    def pause(self, failures: int, draw: Callable[[], float] = random.random) -> float:
        """Seconds to wait after the `failures`-th failure (1 for the first); `draw` gives 0.0 to 1.0."""
        longest = grown(failures, self.first, self.factor, self.cap)
        return drawn(longest, draw) if self.jitter else longest


class Budget:
    """A bucket of retries that many callers share: when a far side is down, retries must not be its next burden.

    Holds at most `size`; every first try puts `ratio` back, every retry takes 1.
    """

    def __init__(self, size: float = 10.0, ratio: float = 0.1) -> None:
        self._size = size
        self._ratio = ratio
        self._left = size
        # A signal handler may make a call while its own thread is inside: it must not wait for itself.
        self._lock = threading.RLock()

    def earn(self) -> None:
        """A first try was made."""
        with self._lock:
            self._left = min(self._size, self._left + self._ratio)

    def spend(self) -> bool:
        """Take one retry; False when there is none left."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True


_LEFT: ContextVar[Callable[[], float | None]] = ContextVar("umavez_time_left", default=lambda: None)


def time_left() -> float | None:
    """Seconds until the deadline of the Retry whose call is running; None without one.

    For the call's own time-out, which alone can end it in time: `client.post(url, timeout=time_left())`.
    """
    return _LEFT.get()()


class Schedule:
    """The course of one call: told of each trouble, it says how long to pause, or that it is over."""

    def __init__(
        self,
        backoff: Backoff,
        *,
        budget: Budget | None = None,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.failures = 0
        self._backoff = backoff
        self._budget = budget
        self._clock = clock
        self._draw = draw
        self._ends = None if deadline is None else clock() + deadline
        if budget is not None:
            budget.earn()

    def left(self) -> float | None:
        """Seconds until the deadline, none when it has passed; None without one."""
        return None if self._ends is None else max(self._ends - self._clock(), 0.0)

    def pause(self, trouble: Trouble) -> float | None:
        """Seconds until the next try; None when attempts, budget, deadline or the trouble itself forbid one."""
        self.failures += 1
        if trouble.phase is Phase.REFUSED or self.failures >= self._backoff.attempts:
            return None
        pause = self._backoff.pause(self.failures, self._draw)
        if trouble.retry_after is not None:
            if trouble.retry_after > self._backoff.longest_wish:
                return None
            pause = max(pause, trouble.retry_after)
        left = self.left()
        if left is not None and pause >= left:
            return None
        if self._budget is not None and not self._budget.spend():
            return None
        return pause


class _Trying:
    """What both kinds of retry are made of."""

    def __init__(
        self,
        backoff: Backoff | None = None,
        *,
        budget: Budget | None = None,
        deadline: float | None = None,
        classify: Classify = trouble_of,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.backoff = Backoff() if backoff is None else backoff
        self._budget = budget
        self._deadline = deadline
        self._classify = classify
        self._clock = clock
        self._draw = draw

    def _schedule(self) -> Schedule:
        return Schedule(self.backoff, budget=self._budget, deadline=self._deadline, clock=self._clock, draw=self._draw)

    def _pause(self, schedule: Schedule, error: Exception, *, allowed: bool) -> tuple[float | None, bool]:
        """How long to pause after `error`, and whether it may have taken effect."""
        trouble = self._classify(error)
        unsure = trouble.phase is Phase.MAYBE_SENT
        if unsure and not allowed:
            return None, True
        return schedule.pause(trouble), unsure

    @staticmethod
    @contextmanager
    def _bounded(schedule: Schedule) -> Iterator[float | None]:
        """What runs inside can ask for its time_left(); gives it."""
        token = _LEFT.set(schedule.left)
        try:
            yield schedule.left()
        finally:
            _LEFT.reset(token)


class Retry(_Trying):
    """Tries a call again while that is safe and promising; `sleep` is how it waits."""

    def __init__(self, *args: Any, sleep: Callable[[float], None] = time.sleep, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sleep = sleep

    def run(self, call: Callable[[], T], *, repeatable: bool = False, ask: Callable[[], Any] | None = None) -> T:
        """What `call` returns. Raises its last error when trying again is not safe, not promising, or over.

        A request that was never sent is sent again. One that may have been is sent again only if `repeatable`
        (the far side dedupes, or it changes nothing), or once `ask` answered NotHappened; Happened(value) is
        returned as the result; CannotTell, or an error in asking, raises the call's error, so that the outcome stays
        unknown. No call begins after the deadline; one that runs is not cut off, and bounds itself by `time_left()`.
        """
        schedule = self._schedule()
        while True:
            try:
                with self._bounded(schedule):
                    return call()
            except Exception as error:
                pause, unsure = self._pause(schedule, error, allowed=repeatable or ask is not None)
                if pause is None:
                    raise
                self._sleep(pause)
                if unsure and ask is not None and not repeatable:
                    answer = self._asked(ask, schedule)
                    if isinstance(answer, Happened):
                        value: T = answer.value
                        return value
                    if not isinstance(answer, NotHappened):
                        error.add_note(_untold(answer))
                        raise
                if schedule.left() == 0:
                    raise

    def _asked(self, ask: Callable[[], Any], schedule: Schedule) -> Any:
        try:
            with self._bounded(schedule):
                return ask()
        except Exception as error:  # noqa: BLE001  # raised, it would hide that the request may have been sent
            return CannotTell(_failed(error))


class AsyncRetry(_Trying):
    """Retry for coroutines; see there."""

    def __init__(self, *args: Any, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sleep = sleep

    async def run(
        self, call: Callable[[], Awaitable[T]], *, repeatable: bool = False, ask: Callable[[], Any] | None = None
    ) -> T:
        """See Retry.run; `ask` may be a coroutine function. What runs at the deadline is cut off: TimeoutError."""
        schedule = self._schedule()
        while True:
            try:
                with self._bounded(schedule) as left:
                    async with asyncio.timeout(left):
                        return await async_awaited(call())
            except Exception as error:
                pause, unsure = self._pause(schedule, error, allowed=repeatable or ask is not None)
                if pause is None:
                    raise
                await self._sleep(pause)
                if unsure and ask is not None and not repeatable:
                    answer = await self._asked(ask, schedule)
                    if isinstance(answer, Happened):
                        value: T = answer.value
                        return value
                    if not isinstance(answer, NotHappened):
                        error.add_note(_untold(answer))
                        raise
                if schedule.left() == 0:
                    raise

    async def _asked(self, ask: Callable[[], Any], schedule: Schedule) -> Any:
        try:
            with self._bounded(schedule) as left:
                async with asyncio.timeout(left):
                    return await async_awaited(ask())
        except Exception as error:  # noqa: BLE001  # as in Retry._asked
            return CannotTell(_failed(error))


def _failed(error: Exception) -> str:
    return f"asking failed with {type(error).__name__}: {error}"


def _untold(answer: object) -> str:
    reason = answer.reason if isinstance(answer, CannotTell) else f"answered {type(answer).__name__}"
    return f"umavez asked whether it happened, and nobody could tell: {reason}"
