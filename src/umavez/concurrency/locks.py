"""Locks: one for threads, and `asyncio.Lock` for a lock that is nearly always free: it makes no coroutine then."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable

Lock = threading.Lock
OwnLock = threading.RLock
"""One that its own thread may take again: a signal handler may make a call while that is inside."""


class _AtOnce:
    """Awaited, it goes on without a pause."""

    __await__ = staticmethod(().__iter__)  # an iterator that is over at once, made without a call into Python code


_AT_ONCE: Awaitable[None] = _AtOnce()  # type: ignore[assignment]  # the iterator is no generator, and need not be


class AsyncLock:
    """Lets one task in at a time, the others in the order they came. Used as `async with lock:`."""

    __slots__ = ("_held", "_waiting")

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[asyncio.Future[None]] | None = None

    def __aenter__(self) -> Awaitable[None]:
        if self._held:
            return self._turn()
        self._held = True
        return _AT_ONCE

    def __aexit__(self, *_: object) -> Awaitable[None]:
        self._pass_on()
        return _AT_ONCE

    async def _turn(self) -> None:
        if self._waiting is None:
            self._waiting = deque()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # Handed to a task that was cancelled before it could look: the next one must not wait for ever.
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """The lock goes to the first who still waits, or is free."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._held = False


AsyncOwnLock = AsyncLock
"""Signals are the loop's to handle, between two steps of its tasks."""
