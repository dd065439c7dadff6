"""Keeping: whether a store's tables of events are there. Until they are, swaps are made without their events.

Events came after the records, in tables of their own: a process may be newer than the tables it works on, and what it
has to write about an outcome must not wait for somebody to migrate.
"""

from __future__ import annotations

import logging
import time

from umavez.core.flow import Swap

LOG = logging.getLogger("umavez")
AGAIN = 60.0
"""Seconds until tables that were not there are looked for again."""
FORGOTTEN = 30 * 86_400_000
"""Milliseconds after which a process that was not seen is forgotten."""


class Keeping:
    """What one store knows of its tables of events; shared with the stores that are joined to transactions."""

    def __init__(self) -> None:
        self._there = False
        self._asked_at: float | None = None

    @property
    def there(self) -> bool | None:
        """Whether the tables are there; None where that has to be asked."""
        if self._there or (self._asked_at is not None and time.monotonic() - self._asked_at < AGAIN):
            return self._there
        return None

    def learn(self, *, there: bool) -> bool:
        """Remember the answer, and give it back; that they are missing is said once."""
        if not there and self._asked_at is None:
            LOG.warning("The tables of events are missing or not ours to write, so none are kept: run umavez migrate.")
        self._there, self._asked_at = there, time.monotonic()
        return there


def bare(swap: Swap) -> Swap:
    """The swap without its event."""
    return Swap(swap.expected, swap.draft._replace(event=None))
