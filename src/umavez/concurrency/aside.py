"""Work aside: waited for only so long, and several pieces at once, in threads and in tasks.

A thread cannot be ended from outside. Whoever waits too long for one leaves it behind, and counts it: it may come back.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")
GLANCE = 0.05
"""Seconds between two looks at `stop` while a thread is waited for."""


class Late(Exception):
    """The work was not over in time, or the waiting was stopped. Nothing is known about it."""


class CutOff(Exception):
    """A task of the work's own was cancelled, by nobody who waits for it. Nothing is known about it."""

    def __init__(self) -> None:
        super().__init__("it was cancelled from within before it had ended")


class Aside:
    """Calls of one kind, each in a thread of its own. `out`: left behind and still running; `late`: since `renew`."""

    def __init__(self) -> None:
        self.out = 0
        self.late = 0
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Count those that are late anew."""
        self.late = 0

    def full(self, most: int) -> bool:
        """Whether so many were late, or still run, that another would only be one more."""
        return max(self.out, self.late) >= most

    def call(
        self, seconds: float, work: Callable[[], T], stop: threading.Event | None = None, *, end: bool = True
    ) -> T:
        """What `work` returns or raises. Raises Late after `seconds` or once `stop` is set; the thread is left behind.

        `end` is for tasks: a thread cannot be ended.
        """
        future: Future[T] = Future()
        context = copy_context()

        def run() -> None:
            try:
                future.set_result(context.run(work))
            except BaseException as error:  # noqa: BLE001  # handed to whoever waits
                future.set_exception(error)

        threading.Thread(target=run, name="umavez-aside", daemon=True).start()
        deadline = time.monotonic() + seconds
        while not future.done():
            left = deadline - time.monotonic()
            if left <= 0 or (stop is not None and stop.is_set()):
                self._leave(future)
                raise Late
            wait_for_futures([future], min(left, GLANCE))
        return future.result()

    def _leave(self, future: Future[Any]) -> None:
        with self._lock:
            self.out += 1
            self.late += 1
        future.add_done_callback(self._back)

    def _back(self, _: Future[Any]) -> None:
        with self._lock:
            self.out -= 1


class AsyncAside:
    """As Aside, each call in a task of its own."""

    def __init__(self) -> None:
        self.late = 0
        self._left: set[asyncio.Future[Any]] = set()

    @property
    def out(self) -> int:
        """How many that were left behind still run."""
        return len(self._left)

    def renew(self) -> None:
        """As Aside.renew."""
        self.late = 0

    def full(self, most: int) -> bool:
        """As Aside.full."""
        return max(self.out, self.late) >= most

    async def call(
        self, seconds: float, work: Callable[[], Awaitable[T]], stop: asyncio.Event | None = None, *, end: bool = True
    ) -> T:
        """As Aside.call. The task is cancelled when it is late, unless `end` is False, and never waited for.

        Raises CutOff where it was cancelled all the same: let out as it came, that would end whoever waits.
        """
        task: asyncio.Future[T] = asyncio.ensure_future(work())
        waited: set[asyncio.Future[Any]] = {task}
        stopping = None if stop is None else asyncio.ensure_future(stop.wait())
        if stopping is not None:
            waited.add(stopping)
        try:
            await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            if stopping is not None:
                stopping.cancel()
        if task.cancelled():
            raise CutOff
        if task.done():
            return task.result()
        self.late += 1
        self._left.add(task)
        task.add_done_callback(self._back)
        if end:
            task.cancel()
        raise Late

    def _back(self, task: asyncio.Future[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains that it was not


def side_by_side(most: int, jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Do the jobs, at most `most` at once; what they returned, in the order in which they ended.

    After an error no further job is begun, those that run are waited for, and the first error is raised.
    """
    waiting, results, errors = iter(jobs), list[T](), list[BaseException]()
    lock = threading.Lock()

    def work() -> None:
        while not errors:
            with lock:
                job = next(waiting, None)
            if job is None:
                return
            try:
                results.append(job())
            except BaseException as error:  # noqa: BLE001  # raised below, in the caller's thread
                errors.append(error)

    threads = [
        threading.Thread(target=work, name="umavez-beside", daemon=True) for _ in range(min(most, len(jobs)) - 1)
    ]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


async def async_side_by_side(most: int, jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """As `side_by_side`, in tasks."""
    waiting, results, errors = iter(jobs), list[T](), list[Exception]()

    async def work() -> None:
        while not errors and (job := next(waiting, None)) is not None:
            try:
                results.append(await job())
            except Exception as error:  # noqa: BLE001  # raised below
                errors.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(most, len(jobs))):
            group.create_task(work())
    if errors:
        raise errors[0]
    return results
