"""Chaos: real processes, kill -9 and SIGSTOP; what must hold is counted afterwards.

A module of this package takes part by naming its trials in `TRIALS`; one with a `main` of its own instead is run as a
programme after them; any other is machinery. A trial does `count`
units of harm (kills, freezes, lost answers) to one backend and returns a Report: what it did, what rare paths it
met, and every violation in words. The seed repeats the choices, not the scheduling of the machine.
"""

from __future__ import annotations

import argparse
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

SQL = ("sqlite", "postgres", "mariadb")
SERVERS = ("postgres", "mariadb", "redis")
STORES = (*SQL, "redis")


@dataclass(frozen=True)
class Setting:
    """One trial's surroundings: a backend of its own, how much harm to do, and where to put files."""

    backend: str
    url: str
    count: int
    seed: int
    folder: Path
    advance: Callable[[int], None] = lambda _done: None
    server: Any = None
    """The private server behind `url`, which a trial may kill and restart; None where the server is shared."""

    @property
    def scope(self) -> str:
        """Whose keys these are: a second run on the same backend must not meet the records of the first."""
        return f"chaos {self.seed}"


@dataclass
class Report:
    """What a trial did and found. `done` is the N of the bound 3/N."""

    done: int = 0
    violations: list[str] = field(default_factory=list)
    sometimes: Counter[str] = field(default_factory=Counter)
    skipped: str = ""

    def blame(self, problem: str) -> None:
        """Note a violation; the first few are enough to start from."""
        self.sometimes["violations"] += 1
        if len(self.violations) < 20:
            self.violations.append(problem)

    def never(self, trial: Trial) -> list[str]:
        """The rare paths that this run did not meet; one is enough to make it void."""
        return [name for name in trial.sometimes if not self.sometimes[name]]


@dataclass(frozen=True)
class Trial:
    """One kind of harm. `sometimes` names the paths without which a run shows nothing."""

    name: str
    run: Callable[[Setting], Report]
    backends: tuple[str, ...]
    short: int
    long: int
    sometimes: tuple[str, ...] = ()
    private: bool = False
    """Needs a server of its own, because it will be killed, or must be set up durably."""


def given(about: str | None, *names: str) -> list[str]:
    """The words that a process of ours was started with, one for each name; helps whoever starts it by hand.

    A name with a question mark may be left out.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in names:
        parser.add_argument(name.rstrip("?"), nargs="?" if name.endswith("?") else None)
    return [word for word in vars(parser.parse_args(sys.argv[1:])).values() if word is not None]


def trials() -> Iterator[Trial]:
    """Every trial of every module here, in the order of their names."""
    for module in _modules():
        yield from getattr(module, "TRIALS", ())


def programmes() -> Iterator[str]:
    """The modules that are programmes of their own: they have a `main` and no TRIALS, and fail by their exit code."""
    for module in _modules():
        if hasattr(module, "main") and not hasattr(module, "TRIALS"):
            yield module.__name__


def _modules() -> Iterator[ModuleType]:
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda found: found.name):
        if found.name != "__main__":
            yield import_module(f"{__name__}.{found.name}")
