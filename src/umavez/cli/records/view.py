"""Records as JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from umavez.cli.durations import human, written
from umavez.cli.paging import Selection
from umavez.cli.screen.table import Cell, columns, fields, heading, indent, indented, parsed, plain
from umavez.cli.screen.table import print_list as print_table
from umavez.cli.screen.timeline import Past, distance, evidence, timeline, told
from umavez.core.record import Instant, Record, Status
from umavez.core.telling.standing import is_lease, state_of, token_state

COLOURS = {
    Status.PENDING: "cyan",
    Status.SUCCESS: "green",
    Status.FAILED: "red",
    Status.UNKNOWN: "bold magenta",
}
WIDE = 110
"""From this width on the list also shows the process instance, and longer notes."""
NOTE_LENGTH = 26, 48
"""Longest note in a narrow and in a wide table; `show` has the whole error."""


def brief(record: Record) -> dict[str, Any]:
    """A record under the names of its columns, without result and progress."""
    return {
        "scope": record.key.scope,
        "operation_name": record.key.operation,
        "idempotency_key": record.key.value,
        "status": record.status.value,
        "process_instance_id": record.process_instance,
        "activity_id": record.activity,
        "attempt": record.attempt,
        "retry_count": record.retry_count,
        "fence": record.fence,
        "error_message": record.error,
        "created_at": written(record.created_at),
        "updated_at": written(record.updated_at),
        "lease_until": written(record.lease_until),
        "expires_at": written(record.expires_at),
    }


def full(record: Record, now: Instant, *, result: bool, past: Past | None = None) -> dict[str, Any]:
    """All that is stored; `result_data` and `progress` are there only when `result` asks for them."""
    body = None if record.settled is None else record.settled.body
    shown = brief(record) | {
        "lapsed": record.lapsed(now),
        "expired": record.is_expired(now),
        "fingerprint": record.fingerprint,
        "stamp": record.stamp,
        "digest": record.key.digest.hex(),
        "outcome_kept": record.settled is not None,
        "result_bytes": None if body is None else len(body.encode()),
        "state": state_of(record, now),
        "evidence": evidence(record),
        "events": told(past or Past()),
    }
    if result:
        shown |= {"result_data": parsed(body), "progress": parsed(record.progress)}
    return shown


def print_list(found: Selection) -> None:
    """A table of records, with what is common to all of them said once."""
    scopes = {record.key.scope for record in found.records}
    whose = f" of {plain(scopes.pop())}" if len(scopes) == 1 else ""
    table = _table(found.records, found.now, with_scope=bool(scopes), wide=Console().width >= WIDE)
    print_table(table, f"record{whose}", f"records{whose}", following=found.next)


def _table(records: list[Record], now: Instant, *, with_scope: bool, wide: bool) -> Table:
    names = ["STATUS|", "SCOPE", "OPERATION", "KEY", "PROCESS", "AGE>", "TRY>", "NOTE|"]
    left_out = {name for name, there in (("SCOPE", with_scope), ("PROCESS", wide)) if not there}
    table = columns(*(name for name in names if name not in left_out))
    for record in records:
        scope = [Text(plain(record.key.scope))] if with_scope else []
        cells = [Text(plain(record.key.operation)), Text(plain(record.key.value))]
        process = [Text(plain(record.process_instance or ""))] if wide else []
        table.add_row(_status(record, now), *scope, *cells, *process, *_tail(record, now, NOTE_LENGTH[wide]))
    return table


def _tail(record: Record, now: Instant, longest: int) -> tuple[str, str, Text]:
    remark = note(record, now)
    remark.truncate(longest, overflow="ellipsis")
    return human(now - record.created_at), str(record.attempt), remark


def _status(record: Record, now: Instant) -> Text:
    colour = "bold yellow" if record.lapsed(now) else COLOURS[record.status]
    if token_state(record, now) is not None or is_lease(record):
        # Kept as FAILED while it waits, or once it was given back; to a person it has not failed.
        return Text(state_of(record, now).upper(), style=colour if record.lapsed(now) else "cyan")
    return Text(record.status.value, style=colour)


def note(record: Record, now: Instant) -> Text:
    """What matters about a record in few words: who holds it, why it failed, how long it is replayed."""
    if record.status is Status.UNKNOWN:
        return Text("did it happen? resolve it", style="magenta")
    if record.lapsed(now):
        since = "" if record.lease_until is None else f" for {human(now - record.lease_until)}"
        return Text(f"holder gone{since}", style="yellow")
    if record.status is Status.PENDING:
        return Text(f"held for {human((record.lease_until or now) - now)} more")
    if record.is_expired(now):
        return Text("expired, to be swept", style="dim")
    if record.error:
        return Text(plain(record.error))
    left = "for ever" if record.expires_at is None else f"{human(record.expires_at - now)} more"
    return Text(f"replayed {left}", style="dim")


def print_record(record: Record, now: Instant, *, result: bool, past: Past | None = None) -> None:
    """One record in full: its fields, its result when asked for, and what people decided about it."""
    console = Console()
    title = Text.assemble((plain(record.key.operation), "bold"), " ", (plain(record.key.value), "bold"))
    console.print(title, Text("of"), Text(plain(record.key.scope)), Text("·"), _status(record, now))
    console.print(fields(_fields(record, now)))
    for name, text in _bodies(record, result=result):
        console.print(heading(name))
        console.print(indent(text))
    console.print(heading("Timeline"))
    console.print(indent(timeline(record, now, past)))


def _fields(record: Record, now: Instant) -> Iterator[tuple[str, Cell]]:
    yield "note", note(record, now)
    for name, value in full(record, now, result=False).items():
        if value is not None and name not in _ELSEWHERE:
            yield name, Text(_cell(name, value, record, now))


_ELSEWHERE = frozenset(
    (
        "scope",
        "operation_name",
        "idempotency_key",
        "status",
        "created_at",
        "updated_at",
        "evidence",
        "events",
        "state",
        "lapsed",
        "expired",
    )
)
"""Fields that the title, the note or the timeline already show."""


def _cell(name: str, value: Any, record: Record, now: Instant) -> str:
    if name == "expires_at" and record.expires_at is not None:
        return f"{value} ({distance(record.expires_at, now)})"
    if name == "lease_until" and record.lease_until is not None:
        return f"{value} ({distance(record.lease_until, now)})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return plain(str(value))


def _bodies(record: Record, *, result: bool) -> list[tuple[str, Text]]:
    body = None if record.settled is None else record.settled.body
    stored = [(name, text) for name, text in (("Result", body), ("Progress", record.progress)) if text is not None]
    if not result:
        hidden = "hidden, since it may hold personal data; see --result"
        return [(name, Text(hidden, style="dim")) for name, _ in stored]
    return [(name, Text(plain(indented(text), keep="\n"))) for name, text in stored]
