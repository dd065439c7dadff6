"""`umavez reconcile`: ask the far side about outcomes that nobody knows."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from umavez._async.once import AsyncOnce
from umavez._sync.once import Once
from umavez._sync.reconcile import AT_ONCE, BUDGET, PATIENCE
from umavez.cli.durations import pause, seconds
from umavez.cli.options import AsJson
from umavez.core.reconciliation import Report
from umavez.errors import ConfigurationError, UmavezError
from umavez.reconcile import AsyncReconciler, Reconciler

App = Annotated[
    str,
    typer.Option(
        "--app",
        metavar="MODULE:NAME",
        help="Where the engine is with its operations, such as shop.main:once.",
    ),
]
Every = Annotated[
    float | None,
    typer.Option(metavar="DURATION", parser=pause, help="Go on, a run every so often, until stopped."),
]


def add(app: typer.Typer) -> None:
    """Put the command on `app`."""
    app.command()(reconcile)


def reconcile(
    app: App,
    every: Every = None,
    budget: Annotated[int, typer.Option(min=1, help="At most so many questions in one run.")] = BUDGET,
    per_scope: Annotated[int | None, typer.Option(min=1, help="At most so many for each scope in one run.")] = None,
    patience: Annotated[
        float, typer.Option(metavar="DURATION", parser=seconds, help="How long one question may take.")
    ] = PATIENCE,
    at_once: Annotated[int, typer.Option(min=1, max=64, help="So many questions side by side.")] = AT_ONCE,
    as_json: AsJson = False,
) -> None:
    """Ask about unknown outcomes whose operations say whom to ask. Several may run side by side.

    \b
    Examples:
      umavez reconcile --app shop.main:once
      umavez reconcile --app shop.main:once --every 1m --budget 50
    """
    once = load_engine(app)

    def report_run(report: Report) -> None:
        print(json.dumps(dataclasses.asdict(report)) if as_json else sentence(report), flush=True)

    options: dict[str, Any] = {
        "budget": budget,
        "per_scope": per_scope,
        "patience": patience,
        "at_once": at_once,
    }
    if isinstance(once, AsyncOnce):
        asyncio.run(_tasks(once, options, every, report_run))
        return
    with once:
        service = Reconciler(once, **options)
        if every is None:
            report_run(service.run())
        else:
            service.serve(stop_on_signal(), every, report_run)


async def _tasks(once: AsyncOnce, options: dict[str, Any], every: float | None, report_run: Any) -> None:
    async with once:
        service = AsyncReconciler(once, **options)
        if every is None:
            report_run(await service.run())
            return
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await service.serve(stop, every, report_run)


def stop_on_signal() -> threading.Event:
    """An event that SIGINT and SIGTERM set, so that a service ends between two records."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def load_engine(place: str) -> Once | AsyncOnce:
    """The engine at `module:name`. Raises ConfigurationError when there is none."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise ConfigurationError(f"--app {place!r} is not MODULE:NAME; write it like shop.main:once.")
    # As `python -m` has it: an application is started in its own folder.
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), name, None)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(f"--app: {missing.name} cannot be imported; start where it can be.") from missing
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported, it is not ours to show
        raise ConfigurationError(
            f"--app: {module} cannot be imported ({_cause(error)}); see: python -c 'import {module}'."
        ) from error
    if not isinstance(found, Once | AsyncOnce):
        raise ConfigurationError(
            f"--app: there is no Once or AsyncOnce at {place!r}; name the engine that declares the operations."
        )
    return found


def _cause(error: BaseException) -> str:
    """What went wrong in a module, or what and on which line: others' messages may hold a password."""
    if isinstance(error, UmavezError):
        return str(error).rstrip(".")
    if isinstance(error, SyntaxError):
        return f"SyntaxError at {Path(error.filename or '?').name}:{error.lineno}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"


def sentence(report: Report) -> str:
    """A report for people: what there was, in one line, and errors below it."""
    counts = dataclasses.asdict(report)
    age = counts.pop("oldest_unknown")
    errors = counts.pop("errors")
    asked = counts.pop("asked")
    words = [f"{count} {name}" for name, count in counts.items() if count]
    oldest = "nothing is unknown" if age is None else f"the oldest unknown is {age:.0f} s old"
    line = f"{asked} asked{': ' if words else ''}{', '.join(words)}; {oldest}."
    return "\n".join([line, *(f"  {error}" for error in errors)])
