"""TaskThreads: threads that run blocking calls for tasks.

An executor does the same with a lock, a condition and a wake-up of the loop for each call, which together cost more
than most of the calls made here: a hand-over there and back takes a tenth of that in this way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class TaskThreads:
    """At most `most` threads, started at the first call. Calls wait in line for a free one."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: _Calls = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._desk: _Desk | None = None
        # Threads know the line, not this object: they end when nobody can call them any more.
        weakref.finalize(self, _dismiss, self._calls, most)

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """What `call` returns or raises. It runs to its end even if its caller is cancelled meanwhile."""
        loop = asyncio.get_running_loop()
        desk = self._desk
        if desk is None or desk.loop is not loop:
            desk = self._desk = _Desk(loop)
        if not self._threads:
            self._start()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put((desk, future, call, args))
        return await future

    def _start(self) -> None:
        for number in range(self._most):
            thread = threading.Thread(target=_work, args=(self._calls,), name=f"{self._name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Let what runs and what waits finish. A later call starts new threads."""
        threads, self._threads = self._threads, []
        _dismiss(self._calls, len(threads))
        for thread in threads:
            thread.join()


class _Desk:
    """Where threads leave what they have done for one loop, which is woken once for all that lies there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._done: deque[_Done] = deque()
        self._woken = False

    def leave(self, done: _Done) -> None:
        """Called by threads."""
        self._done.append(done)
        # Looked at after the append: whoever lowers the flag empties the desk after that.
        if not self._woken:
            self._woken = True
            # A loop that was closed by force has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._woken = False
        while self._done:
            future, answer, error = self._done.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)


_Done = tuple["asyncio.Future[Any]", Any, BaseException | None]
_Calls = SimpleQueue[tuple[_Desk, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]] | None]


def _work(calls: _Calls) -> None:
    while (asked := calls.get()) is not None:
        desk, future, call, args = asked
        desk.leave(_done(future, call, args))
        del asked, desk, future, call, args  # while it waits, a thread keeps nothing of the last call alive


def _done(future: asyncio.Future[Any], call: Callable[..., Any], args: tuple[Any, ...]) -> _Done:
    try:
        return future, call(*args), None
    except StopIteration as error:
        # A future cannot carry one: the caller's `await` would take it for its own end.
        return future, None, RuntimeError(f"A call let {error!r} out.")
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is the caller's
        return future, None, error


def _dismiss(calls: _Calls, threads: int) -> None:
    """Let so many threads end, once they have done what was asked before."""
    for _ in range(threads):
        calls.put(None)
