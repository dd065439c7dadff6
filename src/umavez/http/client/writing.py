"""How the journal is written: by a thread as it comes; for a task in a thread, so that the disk holds up no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")


def written(call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `call` returns."""
    return call(*args, **named)


async def async_written(call: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
    """The same, called in a thread; without named arguments."""
    return await anyio.to_thread.run_sync(call, *args)
