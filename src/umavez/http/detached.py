"""Detached work: a request's own task, which neither the client's leaving nor the caller's cancellation ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any

Work = Coroutine[Any, Any, None]


class Detached:
    """Carries out work in tasks that it holds on to: one that nothing refers to can be collected halfway."""

    def __init__(self) -> None:
        self.working: set[asyncio.Task[None]] = set()

    async def finish(self, work: Work) -> None:
        """Wait until `work` is done, in a task of its own. Raises what it raises."""
        await self._waited(work, None)

    async def finish_eagerly(self, work: Work) -> None:
        """The same for work that either ends at once or says `hand_over` before anything that may be waited for.

        A replay from memory ends at once, and is spared the task.
        """
        context = copy_context()
        try:
            context.run(work.send, None)
        except StopIteration:
            return
        await self._waited(work, context)

    async def _waited(self, work: Work, context: Context | None) -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        task = loop.create_task(_reported(work, waiting), context=context)
        self.working.add(task)
        task.add_done_callback(self.working.discard)
        await waiting


async def _reported(work: Work, waiting: asyncio.Future[None]) -> None:
    """Carry `work` out and tell whoever still waits. An error that nobody waits for stays with the task."""
    try:
        await work
    except BaseException as error:
        if waiting.done() or not isinstance(error, Exception):
            waiting.cancel()
            raise
        waiting.set_exception(error)
    else:
        if not waiting.done():
            waiting.set_result(None)


@coroutine
def hand_over() -> Generator[None, None, None]:
    """The point from which eager work goes on in its task: app code must see one task from its first line on."""
    yield
