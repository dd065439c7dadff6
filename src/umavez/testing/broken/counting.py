"""Stores that count wrongly."""

from __future__ import annotations

from collections.abc import Sequence

from umavez.core.record import Instant, Millis
from umavez.core.telling.minutes import HOUR, Tally, summed
from umavez.stores.memory import MemoryStore


class AddsTalliesUp(MemoryStore):
    """Adds what it is told to what it was told before, and so counts twice what is sent twice."""

    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Add it."""
        known = [tally for name, tally in self._minutes.items() if name[:2] == (span, process)]
        return super().tally(process, span, summed([*known, *tallies]))


class CountsOneProcess(MemoryStore):
    """Keeps one number for each name, whoever told it."""

    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Let the last have its way."""
        return super().tally("all", span, tallies)


class KeepsNumbersForEver(MemoryStore):
    """Forgets nothing, and fills up."""

    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Put back what went."""
        before = dict(self._minutes)
        now = super().tally(process, span, tallies)
        self._minutes = before | self._minutes
        return now


class CountsByTheHour(MemoryStore):
    """Takes every span for one of an hour."""

    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Keep it with the hours."""
        return super().tally(process, HOUR, tallies)
