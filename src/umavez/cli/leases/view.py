"""Leases as JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.text import Text

from umavez.cli.durations import human, written
from umavez.cli.paging import Selection
from umavez.cli.screen.table import Cell, columns, fields, heading, indent, plain
from umavez.cli.screen.table import print_list as print_table
from umavez.cli.screen.timeline import Past, distance, evidence, timeline
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
    table = columns("STATE|", "KIND", "NAME", "FENCE>", "UNTIL|")
    for record in found.records:
        names = (Text(plain(record.key.scope)), Text(plain(record.key.value)))
        table.add_row(_state(record, found.now), *names, str(record.fence), until(record, found.now))
    print_table(table, "lease", "leases", following=found.next)


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


def print_lease(record: Record, now: Instant, past: Past) -> None:
    """One lease in full."""
    console = Console()
    title = Text.assemble((plain(record.key.value), "bold"), " of ", plain(record.key.scope), " · ")
    console.print(title + _state(record, now))
    console.print(fields(_fields(record, now)))
    console.print(heading("Timeline"))
    console.print(indent(timeline(record, now, past)))


def _fields(record: Record, now: Instant) -> Iterator[tuple[str, Cell | None]]:
    remark = note(record)
    yield "fence", str(record.fence)
    if record.lease_until is not None:
        yield "lease_until", f"{written(record.lease_until)} ({distance(record.lease_until, now)})"
    yield "note", Text(plain(remark)) if remark else None
