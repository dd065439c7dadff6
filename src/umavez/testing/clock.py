"""ManualClock: time that passes only when told to."""

from __future__ import annotations

from umavez.clock import Clock

START = 1_750_000_000_000
"""Where manual time begins, in milliseconds: fixed, so that a failing schedule repeats exactly."""


class ManualClock(Clock):
    """Stands still until `advance`.

    A store with a server's clock takes only `offset` from it: there real time goes on
    as well, and `advance` jumps ahead.
    """

    def __init__(self, start: int = START) -> None:
        self._start = start
        self.offset = 0

    def now(self) -> int:
        """The start plus all advances, in milliseconds."""
        return self._start + self.offset

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once."""
        self.offset += round(seconds * 1000)
