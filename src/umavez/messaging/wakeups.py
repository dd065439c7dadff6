"""Wake-ups: a hint that there may be something to do, so that nobody has to wait for the next look.

A hint is never needed: whoever misses one looks again after its poll. It may also come early, because a message is
appended before its transaction commits; so whoever is woken looks several times, at growing distances.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from umavez.concurrency.after_fork import reset_after_fork

CHANNEL = "umavez_outbox"
"""What PostgreSQL notifies of messages; equal notifications of one transaction are sent once."""


class Wakeups:
    """Tells the event loops of this process that something was appended. Safe to use from any thread."""

    def __init__(self) -> None:
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Know nobody: the loops of a parent process do not run in its child, and would keep every hint for ever."""
        # A signal handler may append while its own thread is inside: it must not wait for itself.
        self._lock = threading.RLock()
        self._events: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event of the running loop that every hint sets."""
        event = asyncio.Event()
        with self._lock:
            self._events[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            with self._lock:
                self._events.pop(event, None)

    def hint(self) -> None:
        """Something was appended, and may be committed soon."""
        if not self._events:
            return
        with self._lock:
            for event, loop in list(self._events.items()):
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)


WAKEUPS = Wakeups()
"""Those of this process."""
