"""Run the trials: `python -m chaos [--short] [TEXT] [--only TEXT] [--on BACKEND] [--seed N] [--count N] [--list]`.

Ends with 1 when something was violated or a run was void: a run in which a rare path never occurred shows nothing.
"""

from __future__ import annotations

import argparse
import random
import secrets
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from chaos import Report, Setting, Trial, programmes, trials
from chaos.engine_places import NoPlace, spot
from tests.servers import Run

SCREEN = Console()
COLOURS = {"ok": "green", "VIOLATED": "bold red", "VOID": "yellow", "skipped": "dim"}


@dataclass(frozen=True)
class Result:
    """One line of the final table."""

    trial: Trial
    backend: str
    seed: int
    seconds: float
    report: Report

    @property
    def word(self) -> str:
        """What to make of it."""
        if self.report.violations:
            return "VIOLATED"
        if self.report.skipped:
            return "skipped"
        return "VOID" if self.report.never(self.trial) else "ok"


def main() -> int:
    """Run what was asked for, and print what came of it."""
    given = arguments()
    wanted = [
        (trial, backend)
        for trial in trials()
        for backend in trial.backends
        if given.only in trial.name and given.on in (None, backend)
    ]
    if given.list:
        for trial, backend in wanted:
            SCREEN.print(f"{trial.name} · {backend}: {trial.short} short, {trial.long} long")
        return 0
    results = conducted(wanted, given)
    others = [] if given.short or given.only or given.on else list(programmes())
    failed = [name for name in others if subprocess.run([sys.executable, "-m", name], check=False).returncode]
    SCREEN.print(table(results))
    for name in failed:
        SCREEN.print(f"[bold red]{name} failed; its own output stands above.[/]")
    return int(bool(failed) or any(result.word in ("VIOLATED", "VOID") for result in results))


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Kill, freeze and cut; then count.")
    parser.add_argument("--short", action="store_true", help="a minute or two in all, instead of an hour or more")
    parser.add_argument("text", nargs="?", default="", metavar="TEXT", help="the same as --only TEXT")
    parser.add_argument("--only", default="", metavar="TEXT", help="trials whose name contains TEXT")
    parser.add_argument("--on", metavar="BACKEND", help="one backend: sqlite, postgres, mariadb or redis")
    parser.add_argument("--seed", type=int, help="repeat the choices of an earlier run")
    parser.add_argument("--count", type=int, help="how much harm to do, instead of the trial's own number")
    parser.add_argument("--list", action="store_true", help="name the trials and do nothing")
    given = parser.parse_args()
    given.only = given.only or given.text
    return given


def conducted(wanted: list[tuple[Trial, str]], given: argparse.Namespace) -> list[Result]:
    """Every wanted trial, one after the other, with a bar for each."""
    run, results = Run.begin(), []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=SCREEN) as bars:
            for trial, backend in wanted:
                count = given.count or (trial.short if given.short else trial.long)
                seed = secrets.randbits(32) if given.seed is None else given.seed
                bar = bars.add_task(f"{trial.name} · {backend}", total=count)
                results.append(one(run, trial, backend, count, seed, lambda done, bar=bar: bars.advance(bar, done)))
                bars.update(bar, completed=count)
                # Told at once: a run of an hour that is stopped early has not been for nothing.
                explain(results[-1])
    finally:
        run.end()
    return results


def one(run: Run, trial: Trial, backend: str, count: int, seed: int, advance: Callable[[int], None]) -> Result:
    """One trial on one backend."""
    random.seed(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="umavez-chaos-") as folder:
        try:
            with spot(run, trial, backend, Path(folder)) as (url, server):
                report = trial.run(Setting(backend, url, count, seed, Path(folder), advance, server))
        except NoPlace as error:
            report = Report(skipped=str(error))
        except Exception:  # noqa: BLE001  # one trial that breaks must not hide what the others found
            report = Report(violations=[f"the trial itself broke:\n{traceback.format_exc()}"])
    return Result(trial, backend, seed, time.monotonic() - began, report)


def table(results: list[Result]) -> Table:
    """All results at a glance. None in N trials shows a rate below about 3/N with 95 % confidence, no more."""
    shown = Table("trial", "backend", "", "N", "3/N", "seed", "seconds")
    for result in results:
        done = result.report.done
        shown.add_row(
            result.trial.name,
            result.backend,
            f"[{COLOURS[result.word]}]{result.word}[/]",
            str(done),
            f"{3 / done:.2%}" if done else "-",
            str(result.seed),
            f"{result.seconds:.1f}",
        )
    return shown


def explain(result: Result) -> None:
    """The counters of one trial, and what went wrong in it."""
    report = result.report
    counters = ", ".join(f"{name} {number}" for name, number in sorted(report.sometimes.items()) if number)
    said = f"{result.word}, N {report.done}, seed {result.seed}, {result.seconds:.1f} s: {report.skipped or counters}"
    said = escape(said)  # what is in brackets is no style
    SCREEN.print(f"[bold]{result.trial.name} · {result.backend}[/]: {said}", highlight=False)
    for violation in report.violations:
        SCREEN.print(f"  [bold red]{violation}[/]", highlight=False)
    if result.word == "VOID":
        SCREEN.print(f"  [yellow]void: never met {', '.join(report.never(result.trial))}; do more harm[/]")


if __name__ == "__main__":
    sys.exit(main())
