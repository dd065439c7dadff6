"""Detached work: a request's own task, which neither the client's leaving nor the caller's cancellation ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any

Work = Coroutine[Any, Any, Any]


class Detached:
    """Carries work out in tasks. It holds on to them: a task that nothing refers to can be collected halfway."""

    def __init__(self) -> None:
        self.working: dict[asyncio.Future[Any], asyncio.Task[Any]] = {}
        """The tasks, each under the future by which its caller hears of the end."""

    async def finish(self, work: Work) -> Any:
        """What `work` gives, done in a task of its own. Raises what it raises."""
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self.working[waiting] = loop.create_task(self._carried(work, [waiting]))
        return await waiting

    async def finish_eagerly(self, work: Work) -> Any:
        """The same for work that either ends at once or says `hand_over` before anything that may be waited for.

        A replay from memory ends at once, and is spared the task.
        """
        hearers: list[asyncio.Future[Any]] = []
        carried, context = self._carried(work, hearers), copy_context()
        try:
            context.run(carried.send, None)
        except StopIteration as ended:
            return ended.value
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        hearers.append(waiting)
        self.working[waiting] = loop.create_task(carried, context=context)
        return await waiting

    async def _carried(self, work: Work, hearers: list[asyncio.Future[Any]]) -> Any:
        """Carry `work` out and tell whoever waits. An error that nobody waits for stays with the task."""
        try:
            value = await work
        except BaseException as error:
            waiting = self._waiting(hearers)
            if waiting is None or not isinstance(error, Exception):
                if waiting is not None:
                    waiting.cancel()
                raise
            waiting.set_exception(error)
            return None
        if hearers and (waiting := self._waiting(hearers)) is not None:
            waiting.set_result(value)
        return value

    def _waiting(self, hearers: list[asyncio.Future[Any]]) -> asyncio.Future[Any] | None:
        """Who still waits for the work that ends now."""
        if not hearers:
            return None
        (waiting,) = hearers
        del self.working[waiting]
        return None if waiting.done() else waiting


@coroutine
def hand_over() -> Generator[None, None, None]:
    """The point from which eager work goes on in its task: app code must see one task from its first line on."""
    yield
