"""Waiting in threads and in tasks: for an event at most for a while, and for what a callable gave."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from _thread import allocate_lock
from collections.abc import Awaitable, Generator
from contextlib import suppress
from inspect import isawaitable
from types import CoroutineType
from typing import Any, Generic, TypeVar

from umavez.errors import StoreUnavailable

T = TypeVar("T")


class Bell:
    """Wakes threads that wait, once. Neither ringing nor waiting can be cut off by a signal so that others hang.

    The lock inside a threading.Event stays held when a handler raises at the wrong moment.
    """

    __slots__ = ("_asleep", "_rung")

    def __init__(self) -> None:
        self._rung = False
        self._asleep: list[threading.Lock] = []

    def ring(self) -> None:
        """Wake everybody who waits, or will."""
        self._rung = True
        while self._asleep:
            self._asleep.pop().release()

    def wait(self, seconds: float) -> None:
        """Return when it has rung or `seconds` have passed."""
        lock = allocate_lock()
        lock.acquire()
        self._asleep.append(lock)
        # Looked at after the append: whoever rings empties the list after that.
        if not self._rung:
            lock.acquire(timeout=seconds)


class AsyncBell:
    """As Bell, for tasks. One of a loop that is over rings no more; whoever waits for it waits his time out."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """As Bell.ring."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """As Bell.wait."""
        await async_wait(self._event, seconds)


def wait(event: threading.Event, seconds: float) -> None:
    """Return when `event` is set or `seconds` have passed."""
    event.wait(seconds)


async def async_wait(event: asyncio.Event, seconds: float) -> None:
    """As `wait`, for tasks."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
    except RuntimeError:
        # An event of a loop that is over: nobody will set it.
        await asyncio.sleep(seconds)


def refuse_rival(loop: asyncio.AbstractEventLoop | None, pid: int) -> None:
    """Raise StoreUnavailable where `loop`, amid a call on what the running one is about to use, runs on in a thread.

    What both share is made for one at a time: whoever waited in one of them would wait for ever. `pid`: the process it
    ran in, for in a forked child a loop of the parent's looks as if it ran.
    """
    if loop is not None and pid == os.getpid() and loop.is_running():
        raise StoreUnavailable(
            "This store is amid a call in the event loop of another thread, and nothing was asked; open an AsyncOnce"
            " for each loop that runs at the same time, or use Once."
        )


def shut(transport: asyncio.BaseTransport | None, loop: asyncio.AbstractEventLoop) -> None:
    """End the conversation on a transport of `loop`, which is over: nothing of it can be asked to close any more.

    A loop that runs on in another thread may be in the middle of a call, and keeps what it uses. uvloop has closed
    what belonged to it, and gives no socket then, or one that cannot be shut.
    """
    connection = None if transport is None or loop.is_running() else transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError, RuntimeError, TypeError):
            connection.shutdown(socket.SHUT_RDWR)


class _Had(Generic[T]):
    """A value, as something to await: it is over at once."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, T]:
        yield from ()
        return self._value


def awaited(given: T) -> T:
    """`given` as it is: threads have waited for it in the call."""
    return given


def async_awaited(given: Awaitable[T] | T) -> Awaitable[T]:
    """`given`, to be awaited; a plain function's value too. An error here would deny what that function has done."""
    if type(given) is CoroutineType or isawaitable(given):
        return given
    return _Had(given)
