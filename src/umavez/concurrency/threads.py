"""ThreadPool: threads that run blocking calls for tasks.

An executor does the same with a lock, a condition and a wake-up of the loop for each call, which together cost more
than most of the calls made here: a hand-over there and back takes a tenth of that in this way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from umavez.errors import Crowded

T = TypeVar("T")
CLOSING = 60.0
"""Seconds that calls under way get to end when threads are closed."""


class ThreadPool:
    """At most `most` threads, started at the first call. Calls wait in line for a free one.

    With `waiting`, at most so many of a loop's calls wait; with `patience`, none for longer than so many seconds.
    """

    def __init__(self, most: int, name: str, *, waiting: int | None = None, patience: float | None = None) -> None:
        self._most = most
        self._name = name
        self._waiting = waiting
        self._patience = patience
        self._calls: _Calls = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._answers: _Answers | None = None
        # Threads know the queue, not this object: they end when nobody can call them any more.
        weakref.finalize(self, _dismiss, self._calls, most)

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """What `call` returns or raises. It runs to its end even if its caller is cancelled meanwhile.

        Raises Crowded when it was not begun, because too many wait or it waited for too long.
        """
        answers = self._answers_here()
        if self._waiting is not None and answers.unanswered >= self._most + self._waiting:
            raise Crowded(f"{self._waiting} calls wait for a thread already; try again later.")
        future: asyncio.Future[T] = answers.loop.create_future()
        asked = self._put(answers, future, call, args)
        # A timer only where no thread can be free: most calls never need one.
        if self._patience is None or answers.unanswered <= self._most:
            return await future
        timer = answers.loop.call_later(self._patience, _give_up, asked, self._patience)
        try:
            return await future
        finally:
            timer.cancel()

    def submit(self, call: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """A future of what `call` returns or raises, for whoever keeps the bounds by himself.

        It is done when the call is over, and not before: do not cancel it.
        """
        answers = self._answers_here()
        future: asyncio.Future[T] = answers.loop.create_future()
        self._put(answers, future, call, args)
        return future

    def _answers_here(self) -> _Answers:
        loop = asyncio.get_running_loop()
        answers = self._answers
        if answers is None or answers.loop is not loop:
            answers = self._answers = _Answers(loop)
        return answers

    def _put(
        self, answers: _Answers, future: asyncio.Future[Any], call: Callable[..., Any], args: tuple[Any, ...]
    ) -> _Asked:
        if not self._threads:
            self._start()
        asked: _Asked = [(answers, future, call, args)]
        answers.unanswered += 1
        self._calls.put(asked)
        return asked

    def _start(self) -> None:
        for number in range(self._most):
            thread = threading.Thread(target=_work, args=(self._calls,), name=f"{self._name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self, longest: float = CLOSING) -> None:
        """Let what runs and what waits finish, for at most `longest` seconds. A later call starts new threads.

        What is not over by then runs on by itself, and its thread ends with it.
        """
        threads, self._threads = self._threads, []
        _dismiss(self._calls, len(threads))
        end = time.monotonic() + longest
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0.0))


class _Answers:
    """Where threads leave what they have done for one loop, which is woken once for all that lies there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.unanswered = 0
        """Calls that were asked for and are neither answered nor given up."""
        self._done: deque[_Done] = deque()
        self._woken = False

    def leave(self, done: _Done) -> None:
        """Called by threads."""
        self._done.append(done)
        # Looked at after the append: whoever lowers the flag empties it after that.
        if not self._woken:
            self._woken = True
            # A loop that was closed by force has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._woken = False
        while self._done:
            future, answer, error = self._done.popleft()
            self.unanswered -= 1
            if future.cancelled():
                continue
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)


_Done = tuple["asyncio.Future[Any]", Any, BaseException | None]
_Asked = list[tuple[_Answers, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]]
"""A call in line: whoever pops it out, a thread or the timer, decides about it; the other finds nothing."""
_Calls = SimpleQueue[_Asked | None]


def _work(calls: _Calls) -> None:
    while (asked := calls.get()) is not None:
        try:
            answers, future, call, args = asked.pop()
        except IndexError:
            continue
        answers.leave(_done(future, call, args))
        del asked, answers, future, call, args  # while it waits, a thread keeps nothing of the last call alive


def _give_up(asked: _Asked, patience: float) -> None:
    """Called by the loop. A call that was begun runs on, and its caller waits for it."""
    try:
        answers, future, _, _ = asked.pop()
    except IndexError:
        return
    answers.unanswered -= 1
    if not future.done():
        future.set_exception(Crowded(f"No thread was free for {patience:g} s; try again later."))


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
