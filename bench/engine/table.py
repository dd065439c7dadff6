"""Rows of the table, and the file that keeps them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sysconfig
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
DRIVERS = ("psycopg", "PyMySQL", "asyncmy", "redis", "hiredis", "uvloop")


@dataclass(frozen=True)
class Row:
    """One line: what was measured in every round, against what, and whether the target is met.

    `ratios` are of the same round, `against` says to what; without them the target is about the value itself.
    """

    what: str
    callers: int | None
    values: Sequence[float]
    unit: str = "ops/s"
    against: str = ""
    ratios: Sequence[float] = ()
    target: float | None = None
    at_most: bool = False
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def judged(self) -> float | None:
        """The number that the target is about."""
        chosen = self.ratios or (() if self.against else self.values)
        return statistics.median(chosen) if chosen else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or nothing to judge."""
        if self.target is None or self.judged is None:
            return None
        return self.judged <= self.target if self.at_most else self.judged >= self.target

    def cells(self) -> tuple[str, ...]:
        """The line as it is printed."""
        sign = "<=" if self.at_most else ">="
        kind = " x" if self.against else ""
        return (
            self.what,
            "" if self.callers is None else str(self.callers),
            _spread(self.values, self.unit),
            f"{statistics.median(self.ratios):.2f} x {self.against}" if self.ratios else "",
            "" if self.target is None else f"{sign} {self.target:g}{kind}",
            {True: "yes", False: "NO", None: ""}[self.met],
            self.note,
        )

    def record(self) -> dict[str, Any]:
        """The line as it is kept."""
        plain = asdict(self)
        plain["values"] = [_rounded(value) for value in self.values]
        plain["ratios"] = [_rounded(value) for value in self.ratios]
        return {**plain, "judged": None if self.judged is None else _rounded(self.judged), "met": self.met}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _spread(values: Sequence[float], unit: str) -> str:
    if not values:
        return "-"
    middle = f"{_number(statistics.median(values))} {unit}"
    return middle if len(values) == 1 else f"{middle} [{_number(min(values))}-{_number(max(values))}]"


HEAD = ("what", "c", "median [min-max]", "ratio", "target", "met", "note")


def shown(rows: Sequence[Row]) -> str:
    """The table as text."""
    lines = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    widths[-1] = 0
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def kept(name: str, rows: Sequence[Row], facts: dict[str, Any]) -> Path:
    """Write the rows under bench/results; returns the file."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    text = {"machine": machine(), **facts, "rows": [row.record() for row in rows]}
    path.write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n")
    return path


def machine() -> dict[str, Any]:
    """What the numbers depend on; nothing that names the machine."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "load_1m": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        # Built as a shared library, as pyenv does here, it takes a quarter more CPU for the same code.
        "python_shared": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
        "drivers": {name: found for name in DRIVERS if (found := _version(name))},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
