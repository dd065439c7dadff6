"""What goes on where its caller is cancelled. Nobody cancels a thread: tasks alone have such callers.

A commit must not be broken off: one whose wait for a standby is cancelled is seen, and may then vanish. And what a
caller has left behind is seen to afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
MOST = 256
"""Callers that are seen to at a time: as many as group commit carries at once."""


def to_its_end(result: T) -> T:
    """As it is: nobody cancels a thread."""
    return result


async def async_to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. A task that is cancelled meanwhile ends when it is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen; whoever cancelled does not wait for it
        raise


class Cancelled(BaseException):
    """Is never raised."""


AsyncCancelled = asyncio.CancelledError


class Afterwards:
    """Has nothing to do."""

    def begin(self, work: Callable[[], None]) -> None:
        """See AsyncAfterwards."""

    def close(self) -> None:
        """See AsyncAfterwards."""


class AsyncAfterwards:
    """Does in tasks of its own what callers left behind; what is more than MOST of it is left undone."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Carry `work` out. It must do without: it ends with its loop, or when it is closed."""
        loop = asyncio.get_running_loop()
        self._tasks = {task for task in self._tasks if task.get_loop() is loop and not task.done()}
        if len(self._tasks) < MOST:
            self._tasks.add(loop.create_task(work()))

    async def close(self) -> None:
        """End what is still being done."""
        loop = asyncio.get_running_loop()
        tasks, self._tasks = [task for task in self._tasks if task.get_loop() is loop], set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
