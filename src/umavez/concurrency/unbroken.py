"""What must not be broken off: a commit whose wait for a standby is cancelled is seen, and may then vanish."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
