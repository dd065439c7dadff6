"""Courtesy: when whoever comes back for a lease lets others go first. Nothing of it is stored."""

from __future__ import annotations

import random
from dataclasses import dataclass

from umavez.backoff import Draw, drawn

POLLS = (0.01, 0.02, 0.05, 0.1, 0.25)
"""Seconds between looks at a lease that somebody else holds; each is drawn from half of that on."""
POLITE = 5.0
"""Seconds after a refusal in which whoever was refused is taken to have rivals."""
ALONE, ALONE_AT_MOST = 1.0, 8.0
"""Seconds for which somebody may take a lease again and again before others get a moment; doubled while none come."""
MOST_NAMES = 1000
"""Leases that are remembered."""


@dataclass(slots=True)
class Streak:
    """Somebody gives a lease back and takes it again, too fast for those who wait to see it free."""

    began: float
    left: float
    number: int = 0
    patience: float = ALONE


class Courtesy:
    """How long the next look at a lease is put off, by what was seen of it.

    A rival cannot be seen by whoever never finds the lease taken: it gives back and takes again within microseconds,
    and those who wait look four times a second. So it leaves a gap in which each of them looks once. If nobody
    comes, the next gap is later, and a lease without rivals costs at most 3 % of its holder's time.
    """

    def __init__(self, draw: Draw = random.random) -> None:
        self._draw = draw
        self._wanted: dict[str, float] = {}
        self._streaks: dict[str, Streak] = {}

    def pause(self, name: str, now: float) -> float:
        """Seconds to wait before the first look."""
        if now < self._wanted.get(name, 0.0):
            # At a moment like any other's, not before them all.
            return drawn(POLLS[-1], self._draw)
        streak = self._streaks.get(name)
        if streak is None or now - streak.left > POLLS[-1]:
            _bound(self._streaks)
            self._streaks[name] = Streak(now, now)
            return 0.0
        if now - streak.began < streak.patience:
            return 0.0
        streak.began = now + POLLS[-1]
        streak.patience = min(2 * streak.patience, ALONE_AT_MOST)
        return POLLS[-1]

    def polled(self, looks: int) -> float:
        """Seconds until the look after `looks` that found the lease taken."""
        return drawn(POLLS[min(looks, len(POLLS)) - 1], self._draw, least=0.5)

    def granted(self, name: str, number: int, now: float) -> None:
        """It is held, as the `number`-th of all who ever held it."""
        streak = self._streaks.get(name)
        if streak is None:
            return
        if 0 < streak.number < number - 1:
            self.met(name, now)
        streak.number = number

    def met(self, name: str, now: float) -> None:
        """Somebody else has it, or had it since."""
        _bound(self._wanted)
        self._wanted[name] = now + POLITE
        self._streaks.pop(name, None)

    def released(self, name: str, now: float) -> None:
        """It was given back."""
        streak = self._streaks.get(name)
        if streak is not None:
            streak.left = now


def _bound(names: dict[str, float] | dict[str, Streak]) -> None:
    if len(names) >= MOST_NAMES:
        names.clear()
