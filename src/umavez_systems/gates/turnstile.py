"""Turnstile: however many requests arrive together, the event loop begins a few of them in each of its turns.

Finding a request's route and reading it is a millisecond or two of work on the loop itself. A hundred at once would
keep it from everything else for the sum of that; in small groups, what is there already is answered in between, and a
probe goes past all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

MOST = 2
"""Requests that are begun in one turn of the loop."""
PROBES = ("/health", "/ready")


class Turnstile:
    """For one event loop. Connections are bounded elsewhere, and with them who waits here."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = MOST) -> None:
        self.loop = loop
        self._most = most
        self._begun = 0
        self._turning = False
        self._line: deque[Callable[[], None]] = deque()

    def enter(self, path: str, begin: Callable[[], None]) -> None:
        """Call `begin` for a request to `path`: now, or when its turn has come."""
        if path in PROBES:
            begin()
            return
        if not self._turning:
            self._turning = True
            self.loop.call_soon(self._turn)
        if self._line or self._begun >= self._most:
            self._line.append(begin)
        else:
            self._begun += 1
            begin()

    def _turn(self) -> None:
        waiting = [self._line.popleft() for _ in range(min(self._most, len(self._line)))]
        self._begun = len(waiting)
        self._turning = bool(waiting)
        if waiting:
            # Before they begin: whatever one of them does, the others have their turn.
            self.loop.call_soon(self._turn)
        for begin in waiting:
            begin()
