"""Load: callers that do one operation again and again for a while. Standard library alone; peers use it too."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

RESULT = {"id": "ch_000000001", "paid": True, "cents": 1000}
"""What the operation returns: 46 bytes of JSON without spaces."""

RECENT = 5000
"""A replay asks for one of this many of the latest completed keys."""

WARM = 0.3
"""Warming up takes this part of the measured time, with the same operation."""

Call = Callable[[str], Any]


class Measured(NamedTuple):
    """Operations per second, and the CPU time of client and server for each."""

    rate: float
    cpu_us: float
    done: int
    server_us: float = 0.0


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

    def __init__(self, seconds: float, server: int) -> None:
        self.server = server
        self.opens = time.perf_counter() + seconds * WARM
        self.closes = self.opens + seconds
        self._seconds = seconds

    def measured(self, done: int, clock: _Clock) -> Measured:
        each = 1e6 / max(done, 1)
        return Measured(done / self._seconds, clock.cpu * each, done, clock.server_cpu * each)


def by_threads(
    call: Call, key: Callable[[], str], callers: int, seconds: float, kept: deque[str], server: int = 0
) -> Measured:
    """Threads call `call`; a lone caller is this thread itself. `server`: whose CPU time is read too."""
    window = _Window(seconds, server)
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
    return window.measured(sum(counts), clock)


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
    """Reads the CPU time of this process and of the server at both ends of the window."""

    def __init__(self, window: _Window) -> None:
        super().__init__(daemon=True)
        self._window = window
        self.cpu = self.server_cpu = 0.0

    def run(self) -> None:
        time.sleep(max(self._window.opens - time.perf_counter(), 0))
        before, server_before = time.process_time(), cpu_of(self._window.server)
        time.sleep(max(self._window.closes - time.perf_counter(), 0))
        self.cpu, self.server_cpu = time.process_time() - before, cpu_of(self._window.server) - server_before


def cpu_of(server: int) -> float:
    """Seconds of CPU that a process and its children have used, those that ended included; 0 for none."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat") if server else ():
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(path.parent.name) == server:
            ticks += sum(map(int, words[11:15]))
        elif int(words[1]) == server:
            ticks += sum(map(int, words[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def by_tasks(
    call: Callable[[str], Awaitable[Any]],
    key: Callable[[], str],
    callers: int,
    seconds: float,
    kept: deque[str],
    server: int = 0,
) -> Measured:
    """Tasks of one loop call `call`."""
    window = _Window(seconds, server)

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
    return window.measured(sum(counts), clock)
