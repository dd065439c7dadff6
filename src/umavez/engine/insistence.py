"""Insistence: how long an attempt tries to record what became of it when its store does not answer.

The effect has happened by then. Given up too early, a failover of a few seconds leaves the key busy until its lease is
over, or in doubt for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

PAUSES = (0.05, 0.25, 1.0)
"""Seconds between the first tries; a hiccup is over by then."""

Insistence = Callable[[float], Iterator[float]]
"""The pauses before each further try, given how many seconds the lease still lives."""


def while_the_lease_lives(left: float) -> Iterator[float]:
    """The first pauses, and then one each second until the lease is over: only then another may have the key."""
    end = time.monotonic() + left
    yield from PAUSES
    while time.monotonic() < end:
        yield PAUSES[-1]


def not_at_all(left: float) -> Iterator[float]:  # noqa: ARG001  # an Insistence like the other
    """No further try: a caller's transaction has to be rolled back first, and a beat is followed by the next."""
    return iter(())
