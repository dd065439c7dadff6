"""Leases as JSON and as tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from umavez.cli.durations import human, written
from umavez.cli.records_view import distance, evidence, footing, plain, timeline
from umavez.cli.selection import Selection
from umavez.core.record import Instant, Record, Status


class LeaseState(StrEnum):
    """Where a lease stands: held, lapsed because its holder is gone, or released."""

    HELD = "held"
    LAPSED = "lapsed"
    RELEASED = "released"


COLOURS = {LeaseState.HELD: "cyan", LeaseState.LAPSED: "bold yellow", LeaseState.RELEASED: "dim"}


def is_lease(record: Record) -> bool:
    """Whether a record of the operation `lease` is one: a lease is never settled, an operation of that name may be."""
    return record.settled is None and record.status in (Status.PENDING, Status.FAILED)


def state_of(record: Record, now: Instant) -> LeaseState:
    """Where the lease of `record` stands at `now`."""
    if record.status is not Status.PENDING:
        return LeaseState.RELEASED
    return LeaseState.LAPSED if record.lapsed(now) else LeaseState.HELD


def brief(record: Record, now: Instant) -> dict[str, Any]:
    """A lease for machines. `fence` is the holder's, or the last holder's."""
    return {
        "kind": record.key.scope,
        "name": record.key.value,
        "state": state_of(record, now).value,
        "fence": record.fence,
        "lease_until": written(record.lease_until),
        "created_at": written(record.created_at),
        "updated_at": written(record.updated_at),
        "expires_at": written(record.expires_at),
    }


def full(record: Record, now: Instant) -> dict[str, Any]:
    """All there is to say about a lease."""
    return brief(record, now) | {"note": note(record), "evidence": evidence(record)}


def note(record: Record) -> str | None:
    """How the lease came to be free. A holder's record still bears the note of the release before it."""
    return None if record.status is Status.PENDING else record.error


def print_list(found: Selection) -> None:
    """A table of leases."""
    console = Console()
    if not found.records:
        console.print("No leases match.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("STATE", no_wrap=True)
    table.add_column("KIND", overflow="fold")
    table.add_column("NAME", overflow="fold")
    table.add_column("FENCE", justify="right", no_wrap=True)
    table.add_column("UNTIL", no_wrap=True)
    for record in found.records:
        names = (Text(plain(record.key.scope)), Text(plain(record.key.value)))
        table.add_row(_state(record, found.now), *names, str(record.fence), until(record, found.now))
    console.print(table)
    console.print(footing(len(found.records), "lease", "leases", more=found.more))


def _state(record: Record, now: Instant) -> Text:
    state = state_of(record, now)
    return Text(state.value, style=COLOURS[state])


def until(record: Record, now: Instant) -> str:
    """How long the lease lasts without another heartbeat, or for how long nobody holds it."""
    state = state_of(record, now)
    if state is LeaseState.HELD:
        return f"{human((record.lease_until or now) - now)} more"
    since = record.updated_at if state is LeaseState.RELEASED else record.lease_until or record.updated_at
    return distance(since, now)


def print_lease(record: Record, now: Instant) -> None:
    """One lease in full."""
    console = Console()
    title = Text.assemble((plain(record.key.value), "bold"), " of ", plain(record.key.scope), " · ")
    console.print(title + _state(record, now))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("fence", str(record.fence))
    if record.lease_until is not None:
        table.add_row("lease_until", f"{written(record.lease_until)} ({distance(record.lease_until, now)})")
    if remark := note(record):
        table.add_row("note", Text(plain(remark)))
    console.print(Padding(table, (1, 0, 0, 2)))
    console.print(Text("\nTimeline", style="bold"))
    console.print(Padding(timeline(record, now, state_of(record, now).value), (0, 0, 0, 2)))
