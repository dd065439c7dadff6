"""Keeping: whether a store can keep events and origins. Until it can, swaps are made without them.

They came after the records, in tables and a column of their own: a process may be newer than the tables it works on,
and what it has to write about an outcome must not wait for somebody to migrate.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from operator import attrgetter

from umavez.core.flow import Swap
from umavez.core.record import Draft

LOG = logging.getLogger("umavez")
AGAIN = 60.0
"""Seconds until tables that were not there are looked for again."""
FORGOTTEN = 30 * 86_400_000
"""Milliseconds after which a process that was not seen is forgotten."""


class Keeping:
    """What one store knows of its tables of events; shared with the stores that are joined to transactions."""

    def __init__(self, what: str = "The tables of events are") -> None:
        self._what = what
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
            LOG.warning("%s missing, old or not ours to write; nothing is kept there: run umavez migrate.", self._what)
        self._there, self._asked_at = there, time.monotonic()
        return there


def telling(draft: Draft) -> bool:
    """Whether `draft` has more to keep than its record: an event, or where its claim came from."""
    return draft.event is not None or draft.origin is not None


def any_telling(swaps: Iterable[Swap]) -> bool:
    """Whether one of them has. Without a step of Python for each: a batch has hundreds, and hardly one that does."""
    return not _NOTHING.issuperset(map(_told, swaps))


_told = attrgetter("draft.event", "draft.origin")
_NOTHING = {(None, None)}


def bare(swap: Swap) -> Swap:
    """The swap without its event and its origin."""
    return Swap(swap.expected, swap.draft._replace(event=None, origin=None))
