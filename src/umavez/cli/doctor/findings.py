"""Findings: what `umavez doctor` says about a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from umavez.core.record import Instant


class Level(StrEnum):
    """How much a finding matters. DANGER: an operation may happen twice or an acknowledged record may vanish."""

    FINE = "fine"
    NOTE = "note"
    WARNING = "warning"
    DANGER = "danger"

    @property
    def counts(self) -> bool:
        """Whether `--strict` fails because of it."""
        return self in (Level.WARNING, Level.DANGER)


@dataclass(frozen=True, slots=True)
class Finding:
    """One setting as it is, and what to do about it if it is not fine."""

    setting: str
    value: str
    level: Level = Level.FINE
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found at one store. `problem` says why nothing could be asked; `url` bears no password."""

    url: str
    product: str
    version: str = ""
    schema: str = ""
    findings: tuple[Finding, ...] = ()
    problem: str | None = None

    @property
    def level(self) -> Level:
        """The worst level among the findings."""
        order = list(Level)
        return max((finding.level for finding in self.findings), key=order.index, default=Level.FINE)


@dataclass(frozen=True, slots=True)
class Rule:
    """A setting, the values that are fine, and what to say about any other."""

    setting: str
    fine: tuple[str, ...]
    level: Level
    advice: str

    def judge(self, value: str) -> Finding:
        """The finding about `value`."""
        if value.lower() in self.fine:
            return Finding(self.setting, value)
        return Finding(self.setting, value, self.level, self.advice)


def judged(rules: Iterable[Rule], facts: Mapping[str, str]) -> list[Finding]:
    """The findings of `rules` on the settings that are known."""
    return [rule.judge(facts[rule.setting]) for rule in rules if rule.setting in facts]


def schema_finding(version: int | None, known: int) -> Finding:
    """What the tables' version means for this version of umavez."""
    if version is None:
        return Finding("schema", "missing", Level.WARNING, "The tables are missing: run umavez migrate.")
    if version < known:
        return Finding("schema", str(version), Level.WARNING, f"Version {known} is known: run umavez migrate.")
    if version > known:
        advice = f"The tables are newer than this umavez, which knows {known}: upgrade umavez."
        return Finding("schema", str(version), Level.DANGER, advice)
    return Finding("schema", str(version))


def clock_finding(theirs: Instant, ours: Instant) -> Finding:
    """How far the store's clock is from this host's. Leases run by the store's, so it is only worth a note."""
    apart = abs(theirs - ours) / 1000
    if apart < 5:
        return Finding("clock", f"{apart:.1f} s apart")
    advice = "Leases follow the store's clock, so they are safe; times in logs will not match. Synchronise both clocks."
    return Finding("clock", f"{apart:.0f} s apart", Level.NOTE, advice)
