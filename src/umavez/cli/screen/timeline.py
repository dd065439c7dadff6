"""What happened to a record, and what people decided about it, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from umavez.cli.durations import human, written
from umavez.cli.screen.table import plain
from umavez.core.key import Key
from umavez.core.record import Instant, Record
from umavez.core.telling.events import PastEvent, Process, read
from umavez.core.telling.history import Moment, entries, moments, name_of
from umavez.stores import Chronicle, Store


class Past(NamedTuple):
    """What a store keeps of a key beside its record: its events, and the processes that wrote them."""

    events: Sequence[PastEvent] = ()
    names: dict[str, Process] = {}  # noqa: RUF012  # never changed


def past_of(store: Store, key: Key) -> Past:
    """What `store` keeps of `key`; nothing where it keeps no events."""
    if not isinstance(store, Chronicle):
        return Past()
    return Past(store.history(key), {process.prefix: process for process in store.processes(1000)})


def evidence(record: Record) -> list[dict[str, Any]]:
    """The decisions kept with a record, oldest first."""
    return [entry | {"at": written(entry["at"])} for entry in entries(record)]


def told(past: Past) -> list[dict[str, Any]]:
    """The events, oldest first."""
    return [
        {
            "at": written(event.at),
            "kind": event.kind,
            "attempt": event.attempt,
            "fence": event.fence,
            "holder": event.holder,
            "process": name_of(event.holder, past.names),
            "detail": read(event.detail)[0] or None,
            "trace": event.trace,
        }
        for event in past.events
    ]


def timeline(record: Record, now: Instant, past: Past | None = None) -> Table:
    """What happened to a record and what people decided about it."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for moment in moments(record, now, *(past or Past())):
        table.add_row(written(moment.at), distance(moment.at, now), _line(moment))
    return table


def _line(moment: Moment) -> Text:
    link = "of" if moment.what == "lease over" else "by"
    who = f"{plain(moment.what)} {link} {plain(moment.who)}" if moment.who else plain(moment.what)
    said = plain(moment.detail)
    tries = f"  attempt {moment.attempt}, fence {moment.fence}" if moment.attempt and moment.fence else ""
    seen = f"  last seen {written(moment.seen)}" if moment.seen else ""
    return Text.assemble((f"{who}: " if said else who, "bold"), said, (f"{tries}{seen}", "dim"))


def distance(instant: Instant, now: Instant) -> str:
    """How far `instant` is from `now`, and on which side."""
    return f"{human(now - instant)} ago" if instant <= now else f"in {human(instant - now)}"
