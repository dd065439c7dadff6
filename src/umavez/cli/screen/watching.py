"""Watching: a list that is drawn again every so often, until somebody has seen enough."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from umavez.cli.durations import pause
from umavez.cli.reconcile import stop_on_signal

SHORTEST = 0.2
"""Seconds between two looks: a store has other work."""

Watch = Annotated[
    float | None,
    typer.Option(metavar="DURATION", parser=pause, help="Draw it again every so often, until Ctrl-C."),
]


def watched(every: float | None, draw: Callable[[], None]) -> None:
    """Call `draw` once; with `every`, again and again until a signal. A terminal is cleared each time."""
    if every is None:
        draw()
        return
    stop = stop_on_signal()
    while True:
        if sys.stdout.isatty():
            print("\033[H\033[2J", end="")
        draw()
        sys.stdout.flush()
        if stop.wait(max(every, SHORTEST)):
            return
