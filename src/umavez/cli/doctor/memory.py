"""What `umavez doctor` says about the memory store."""

from __future__ import annotations

from umavez.cli.doctor.findings import Examination, Finding, Level


def examine(url: str) -> Examination:
    """The memory store is always there and never lasts."""
    advice = "Every record ends with the process, and a second process knows none of them: use it for tests only."
    return Examination(url, "memory", "", "none needed", (Finding("durability", "none", Level.WARNING, advice),))
