"""Clock: where stores without a clock of their own get the time, and how tests move it."""

from __future__ import annotations

import time


class Clock:
    """The time of this host in milliseconds, plus `offset`.

    A server's store uses its server's clock and adds only `offset`, which is zero in production and
    lets tests step past a lease without sleeping.
    """

    offset: int = 0

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + self.offset


class Steady(Clock):
    """The time of this host when it was made, and what has passed since: setting the host's clock does not move it.

    For what lasts no longer than the process.
    """

    def __init__(self) -> None:
        self._ahead = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return (time.monotonic_ns() + self._ahead) // 1_000_000 + self.offset


SYSTEM = Clock()
