"""A cancellation that is not lost: `asyncio.wait_for` swallows one that comes in the same turn as its result.

So it is in Python 3.11, and asyncmy waits so for every answer: of tasks cancelled at random amid their statements, one
in nine went on as if nobody had asked it to end. One that works in a loop then never ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
_SWALLOWS = sys.version_info < (3, 12)


def heard(result: T) -> T:
    """As it is: nobody cancels a thread."""
    return result


async def async_heard(work: Awaitable[T]) -> T:
    """What `work` returns. Raises CancelledError where the task was cancelled and `work` said nothing of it."""
    task = asyncio.current_task() if _SWALLOWS else None
    if task is None:
        return await work
    before = task.cancelling()
    result = await work
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return result
