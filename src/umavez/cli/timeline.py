"""What happened to a record, and what people decided about it, as JSON and as a table."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from umavez.cli.durations import human, written
from umavez.cli.table import parsed, plain
from umavez.core.record import Instant, Record


def evidence(record: Record) -> list[dict[str, Any]]:
    """The decisions kept with a record, oldest first."""
    return [entry | {"at": written(entry["at"])} for entry in _entries(record.evidence)]


def timeline(record: Record, now: Instant, state: str) -> Table:
    """What happened to a record and what people decided about it; `state` is where it stands, in a word."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for at, what in _events(record, state):
        table.add_row(written(at), distance(at, now), what)
    return table


def _events(record: Record, state: str) -> list[tuple[Instant, Text]]:
    events = [(record.created_at, Text("created"))]
    for entry in _entries(record.evidence):
        who = f"{plain(str(entry.get('what', 'noted')))} by {plain(str(entry.get('by', 'somebody')))}"
        reason = plain(str(entry.get("reason", "")))
        events.append((_moment(entry, record), Text.assemble((f"{who}: " if reason else who, "bold"), reason)))
    events.append((record.updated_at, Text(f"last change, {state}")))
    return sorted(events, key=lambda event: event[0])


def _moment(entry: dict[str, Any], record: Record) -> Instant:
    """When an entry was written. The one that a token begins with has no time: the store gave it with the record."""
    if entry["at"] is not None:
        return int(entry["at"])
    return record.created_at if "what" in entry else record.updated_at


def distance(instant: Instant, now: Instant) -> str:
    """How far `instant` is from `now`, and on which side."""
    return f"{human(now - instant)} ago" if instant <= now else f"in {human(instant - now)}"


def _entries(evidence: str | None) -> list[dict[str, Any]]:
    """The entries of the evidence. One that another program wrote in another form is shown as its words."""
    kept = parsed(evidence) or []
    entries = kept if isinstance(kept, list) else [kept]
    return [entry if _is_entry(entry) else {"at": None, "reason": str(entry)} for entry in entries]


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("at", ""), int | None)
