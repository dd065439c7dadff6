"""Backoff: how far apart tries are. The one arithmetic behind retry, messaging, the HTTP client and reconciliation."""

from __future__ import annotations

import random
from collections.abc import Callable

Draw = Callable[[], float]
"""Gives 0.0 to 1.0."""


def grown(failures: int, first: float, factor: float, cap: float) -> float:
    """Seconds after the `failures`-th failure (1 for the first): `first`, each time `factor` longer, up to `cap`."""
    try:
        return min(first * float(factor) ** max(failures - 1, 0), cap)
    except OverflowError:  # thousands of failures
        return cap if first > 0 else 0.0


def drawn(longest: float, draw: Draw = random.random, *, least: float = 0.0) -> float:
    """A pause between `least` (a share) of `longest` and all of it: who failed together come back apart."""
    return longest * (least + (1.0 - least) * draw())
