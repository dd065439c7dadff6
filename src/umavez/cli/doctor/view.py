"""The doctor's report as JSON and as tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from umavez.cli.doctor.findings import Examination, Finding, Level
from umavez.cli.screen.table import plain

MARKS = {
    Level.FINE: ("✓", "green"),
    Level.NOTE: ("·", "blue"),
    Level.WARNING: ("!", "yellow"),
    Level.DANGER: ("✗", "bold red"),
}


def document(examinations: list[Examination], absent: list[str]) -> dict[str, Any]:
    """The report as one JSON document."""
    return {"stores": [_entry(examination) for examination in examinations], "not_running": absent}


def _entry(examination: Examination) -> dict[str, Any]:
    return {
        "url": examination.url,
        "product": examination.product,
        "reachable": examination.problem is None,
        "problem": examination.problem,
        "version": examination.version or None,
        "schema": examination.schema or None,
        "level": examination.level.value,
        "findings": [
            {
                "setting": finding.setting,
                "value": finding.value,
                "level": finding.level.value,
                "advice": finding.advice or None,
            }
            for finding in examination.findings
        ],
    }


def print_report(named: list[Examination], found: list[Examination], absent: list[str], *, everything: bool) -> None:
    """A paragraph for each store: what it is, then what to do about it."""
    console = Console()
    for examination in named:
        _print_store(console, examination, "", everything=everything)
    for examination in found:
        _print_store(console, examination, " (found on this machine)", everything=everything)
    if absent:
        console.print(Text(f"Nothing listens on the standard port of {' and '.join(absent)}.", style="dim"))
    if not named and not found:
        console.print("No store was found; pass --store URL or set UMAVEZ_STORE.")


def _print_store(console: Console, examination: Examination, origin: str, *, everything: bool) -> None:
    head = Text.assemble(_mark(examination), " ", (plain(examination.url), "bold"), (origin, "dim"))
    console.print(head, soft_wrap=True)
    console.print(Text(f"  {_summary(examination)}", style="dim"))
    shown = [finding for finding in examination.findings if everything or finding.level is not Level.FINE]
    if examination.problem is not None:
        console.print(Padding(Text(plain(examination.problem), style="red"), (0, 0, 0, 4)))
    if shown:
        console.print(Padding(_findings(shown), (0, 0, 0, 2)))
    console.print()


def _mark(examination: Examination) -> tuple[str, str]:
    return MARKS[Level.DANGER if examination.problem is not None else examination.level]


def _summary(examination: Examination) -> str:
    if examination.problem is not None:
        return f"{examination.product}, not reachable"
    fine = sum(finding.level is Level.FINE for finding in examination.findings)
    parts = [f"{examination.product} {examination.version}".strip(), f"schema {examination.schema}"]
    counts = [
        sum(finding.level is level for finding in examination.findings) for level in (Level.WARNING, Level.DANGER)
    ]
    if counts[1]:
        parts.append(f"{counts[1]} dangerous")
    if counts[0]:
        parts.append(f"{counts[0]} {'warning' if counts[0] == 1 else 'warnings'}")
    return " · ".join([*parts, f"{fine} of {len(examination.findings)} checks fine"])


def _findings(findings: list[Finding]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(width=1, no_wrap=True)
    table.add_column(overflow="fold")
    for finding in sorted(findings, key=lambda finding: -list(Level).index(finding.level)):
        mark, style = MARKS[finding.level]
        what = Text.assemble(plain(finding.setting), " = ", (plain(finding.value), style))
        table.add_row(Text(mark, style=style), what)
        if finding.advice:
            table.add_row("", Text(finding.advice, style="dim" if finding.level is Level.NOTE else ""))
    return table
