"""Detached work: a request's own task, which neither the client's leaving nor the caller's cancellation ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Detached:
    """Carries out work in tasks that it holds on to: one that nothing refers to can be collected halfway."""

    def __init__(self) -> None:
        self.working: set[asyncio.Task[None]] = set()

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, done in a task of its own. Raises what it raises."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[T] = loop.create_future()
        self._hold(loop.create_task(_reported(work, waiting)))
        return await waiting

    async def finish_eagerly(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for work that either ends at once or says `hand_over` before anything that may be waited for.

        A replay from memory ends at once, and is spared the task.
        """
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[T] = loop.create_future()
        reported, context = _reported(work, waiting), copy_context()
        try:
            context.run(reported.send, None)
        except StopIteration:
            return waiting.result()
        self._hold(loop.create_task(reported, context=context))
        return await waiting

    def _hold(self, task: asyncio.Task[None]) -> None:
        self.working.add(task)
        task.add_done_callback(self.working.discard)


async def _reported(work: Coroutine[Any, Any, T], waiting: asyncio.Future[T]) -> None:
    """Carry `work` out and tell whoever still waits. An error that nobody waits for stays with the task."""
    try:
        value = await work
    except BaseException as error:
        if waiting.done() or not isinstance(error, Exception):
            waiting.cancel()
            raise
        waiting.set_exception(error)
    else:
        if not waiting.done():
            waiting.set_result(value)


@coroutine
def hand_over() -> Generator[None, None, None]:
    """The point from which eager work goes on in its task: app code must see one task from its first line on."""
    yield
