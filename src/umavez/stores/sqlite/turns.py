"""Turns: how long a caller waits for the locks around a SQLite file, and what it is told when it waited in vain."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from urllib.parse import parse_qsl

from umavez.errors import ConfigurationError, StoreUnavailable

with suppress(ImportError):  # exists on POSIX only, and only there a Guard is made
    import fcntl

    _AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB

BUSY = "Another writer has held the SQLite file for {:g} s; nothing was written, try again."


class Turn:
    """A lock that is waited for so many seconds and no longer; then StoreUnavailable is raised."""

    __slots__ = ("_lock", "_seconds", "acquire", "release")

    def __init__(self, lock: threading.Lock | threading.RLock, seconds: float) -> None:
        self._lock = lock
        self._seconds = seconds
        self.acquire, self.release = lock.acquire, lock.release

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._seconds):
            raise StoreUnavailable(BUSY.format(self._seconds), waited=True)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Guard:
    """The lock file that keeps two processes from writing a WAL file together on an old library.

    The kernel serves those who wait in their order, but without a time-out, and a frozen process would hold them for
    good. So a thread waits for it; whoever gives up meanwhile leaves the thread to give back what it gets.
    """

    def __init__(self, path: str, seconds: float) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        self._seconds = seconds
        # Held for a moment by every write: asked for by itself, without the steps of Python that a condition adds.
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._wanted = self._got = self._asking = False

    def __enter__(self) -> None:
        with self._lock:
            if self._asking or not self._taken(_AT_ONCE):
                self._wait()

    def _wait(self) -> None:
        self._wanted, mine = True, False
        if not self._asking:
            self._asking = True
            threading.Thread(target=self._ask, name="umavez-sqlite-guard", daemon=True).start()
        try:
            mine = self._turn.wait_for(lambda: self._got, self._seconds)
            if not mine:
                raise StoreUnavailable(BUSY.format(self._seconds), waited=True)
        finally:
            got, self._wanted, self._got = self._got, False, False
            if got and not mine:  # an exception of a signal handler came between
                self._taken(fcntl.LOCK_UN)

    def _ask(self) -> None:
        taken = self._taken(fcntl.LOCK_EX)
        with self._turn:
            self._asking = False
            if taken and self._wanted:
                self._got = True
                self._turn.notify()
            elif taken:
                self._taken(fcntl.LOCK_UN)

    def _taken(self, how: int) -> bool:
        try:
            fcntl.flock(self._descriptor, how)
        except OSError:  # somebody else has it; or it was closed, which gave it back
            return False
        return True

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the lock back, if it is held, and let go of the file."""
        os.close(self._descriptor)


def guarding(guard: Guard | None) -> AbstractContextManager[None]:
    """The guard's turn, or nothing where there is none."""
    return nullcontext() if guard is None else guard


def busy_seconds(url: str, otherwise: float) -> float:
    """The option `timeout` of `url`. Raises ConfigurationError."""
    text = dict(parse_qsl(url.partition("?")[2], keep_blank_values=True)).get("timeout")
    if text is None:
        return otherwise
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise ConfigurationError(f"{url!r}: timeout is a number of seconds up to 3600; leave it out to get 10.")
    return seconds
