"""`umavez sweep`: delete what is past its time, now or on a schedule, one process at a time."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from umavez._sync.once import Once
from umavez.cli.durations import seconds
from umavez.cli.options import AsJson, OlderThan, StoreUrl, existing_url
from umavez.cli.reconcile import Every, stop_on_signal
from umavez.core.sweeping import KIND
from umavez.sweep import Sweeper, Swept


def add(app: typer.Typer) -> None:
    """Put the command on `app`."""
    app.command()(sweep)


def sweep(
    store: StoreUrl = None,
    every: Every = None,
    older_than: OlderThan = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="How many per transaction.")] = 1000,
    pause: Annotated[
        float, typer.Option(metavar="DURATION", parser=seconds, help="Rest between batches, so that others get on.")
    ] = "0.05s",  # type: ignore[assignment]  # typer parses a default like any text, and the help shows it
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many in one pass.")] = None,
    as_json: AsJson = False,
) -> None:
    """Delete expired records in batches. Where another process sweeps already, nothing is done.

    \b
    Examples:
      umavez sweep
      umavez sweep --every 1h
    """

    def report_run(swept: Swept) -> None:
        print(json.dumps(swept._asdict()) if as_json else sentence(swept), flush=True)

    with Once(existing_url(store), scope=KIND) as once:
        sweeper = Sweeper(once, batch=batch, pause=pause, limit=limit, older_than=older_than or 0.0)
        if every is None:
            report_run(sweeper.run(told=_progress if sys.stderr.isatty() else None))
        else:
            sweeper.serve(stop_on_signal(), every, report_run)


def _progress(deleted: int) -> None:
    print(f"\r{deleted:,} deleted so far ", end="", file=sys.stderr, flush=True)


def sentence(swept: Swept) -> str:
    """What a pass did, for people."""
    why = f"; {swept.stopped}" if swept.stopped else ""
    return f"{swept.deleted:,} expired {'record' if swept.deleted == 1 else 'records'} deleted{why}."
