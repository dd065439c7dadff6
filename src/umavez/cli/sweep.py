"""`umavez sweep`: delete what is past its time, now or on a schedule, one process at a time."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from umavez.cli.durations import seconds
from umavez.cli.options import AsJson, OlderThan, StoreUrl, named
from umavez.cli.reconcile import Every, stopped_by_signal
from umavez.once import Once
from umavez.sweep import KIND, Sweeper, Swept


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

    def told(swept: Swept) -> None:
        print(json.dumps(swept._asdict()) if as_json else sentence(swept), flush=True)

    with Once(named(store), scope=KIND) as once:
        sweeper = Sweeper(once, batch=batch, pause=pause, limit=limit, older_than=older_than or 0.0)
        if every is None:
            told(sweeper.run())
        else:
            sweeper.serve(stopped_by_signal(), every, told)


def sentence(swept: Swept) -> str:
    """What a pass did, for people."""
    why = f"; {swept.stopped}" if swept.stopped else ""
    return f"{swept.deleted:,} expired {'record' if swept.deleted == 1 else 'records'} deleted{why}."
