"""Load: callers that do one operation again and again for a while. Standard library alone; peers use it too."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, NamedTuple

RESULT = {"id": "ch_000000001", "paid": True, "cents": 1000}
"""What the operation returns: 46 bytes of JSON without spaces."""

RECENT = 5000
"""A replay asks for one of this many of the latest completed keys."""

WARM = 0.3
"""Warming up takes this part of the measured time, with the same operation."""

Call = Callable[[str], Any]


class Measured(NamedTuple):
    """Operations per second, and the client's CPU time for each."""

    rate: float
    cpu_us: float
    done: int


class Keys:
    """New keys for first calls, and completed ones for replays."""

    def __init__(self, salt: str) -> None:
        self._salt = salt
        self._numbers = count()
        self.completed: deque[str] = deque(maxlen=RECENT)

    def new(self) -> str:
        """A key of 36 characters that nobody has used."""
        return f"{self._salt}-40d5-43dd-bc93-{next(self._numbers):012x}"

    def known(self) -> Callable[[], str]:
        """Gives a random completed key at each call."""
        keys = list(self.completed)
        return lambda: keys[int(random.random() * len(keys))]


class _Window:
    """Warming up, then the measured time."""

    def __init__(self, seconds: float) -> None:
        self.opens = time.perf_counter() + seconds * WARM
        self.closes = self.opens + seconds
        self._seconds = seconds

    def measured(self, done: int, cpu: float) -> Measured:
        return Measured(done / self._seconds, cpu / max(done, 1) * 1e6, done)


def by_threads(call: Call, key: Callable[[], str], callers: int, seconds: float, kept: deque[str]) -> Measured:
    """Threads call `call`; a lone caller is this thread itself."""
    window = _Window(seconds)
    counts = [0] * callers
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            counts[number] = _worked(call, key, window, kept)
        except BaseException as error:  # noqa: BLE001  # told by the caller of by_threads
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, callers)]
    clock = _Clock(window)
    clock.start()
    for thread in threads:
        thread.start()
    work(0)
    for thread in (*threads, clock):
        thread.join()
    if failures:
        raise failures[0]
    return window.measured(sum(counts), clock.cpu)


def _worked(call: Call, key: Callable[[], str], window: _Window, kept: deque[str]) -> int:
    now, done = time.perf_counter, 0
    while now() < window.closes:
        name = key()
        call(name)
        kept.append(name)
        if window.opens < now() <= window.closes:
            done += 1
    return done


class _Clock(threading.Thread):
    """Reads the process's CPU time at both ends of the window."""

    def __init__(self, window: _Window) -> None:
        super().__init__(daemon=True)
        self._window = window
        self.cpu = 0.0

    def run(self) -> None:
        time.sleep(max(self._window.opens - time.perf_counter(), 0))
        before = time.process_time()
        time.sleep(max(self._window.closes - time.perf_counter(), 0))
        self.cpu = time.process_time() - before


async def by_tasks(
    call: Callable[[str], Awaitable[Any]], key: Callable[[], str], callers: int, seconds: float, kept: deque[str]
) -> Measured:
    """Tasks of one loop call `call`."""
    window = _Window(seconds)

    async def work() -> int:
        now, done = time.perf_counter, 0
        while now() < window.closes:
            name = key()
            await call(name)
            kept.append(name)
            if window.opens < now() <= window.closes:
                done += 1
        return done

    clock = _Clock(window)
    clock.start()
    counts = await asyncio.gather(*(work() for _ in range(callers)))
    clock.join()
    return window.measured(sum(counts), clock.cpu)
