"""Records as JSON and as tables. Keys and messages come from strangers, so nothing of them reaches the terminal raw."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from umavez.cli.durations import human, written
from umavez.core.record import Instant, Record, Status

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


def full(record: Record, now: Instant, *, result: bool) -> dict[str, Any]:
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
        "evidence": evidence(record),
    }
    if result:
        shown |= {"result_data": parsed(body), "progress": parsed(record.progress)}
    return shown


def evidence(record: Record) -> list[dict[str, Any]]:
    """The decisions kept with a record, oldest first."""
    return [entry | {"at": written(entry["at"])} for entry in _entries(record.evidence)]


def print_list(records: list[Record], now: Instant, *, more: bool) -> None:
    """A table of records, with what is common to all of them said once."""
    console = Console()
    if not records:
        console.print("No records match.")
        return
    scopes = {record.key.scope for record in records}
    console.print(_table(records, now, with_scope=len(scopes) > 1, wide=console.width >= WIDE))
    whose = f" of {plain(scopes.pop())}" if len(scopes) == 1 else ""
    console.print(footing(len(records), f"record{whose}", f"records{whose}", more=more))


def footing(count: int, one: str, many: str, *, more: bool) -> Text:
    """The line below a list: how many there are, and whether a limit cut it."""
    rest = "; there are more, see --limit" if more else ""
    return Text(f"{count:,} {one if count == 1 else many}{rest}", style="dim")


def _table(records: list[Record], now: Instant, *, with_scope: bool, wide: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("STATUS", no_wrap=True)
    for name in ("SCOPE", "OPERATION", "KEY"):
        if with_scope or name != "SCOPE":
            table.add_column(name, overflow="fold")
    if wide:
        table.add_column("PROCESS", overflow="fold")
    table.add_column("AGE", justify="right", no_wrap=True)
    table.add_column("TRY", justify="right", no_wrap=True)
    table.add_column("NOTE", no_wrap=True)
    for record in records:
        cells = [Text(plain(record.key.operation)), Text(plain(record.key.value))]
        scope = [Text(plain(record.key.scope))] if with_scope else []
        process = [Text(plain(record.process_instance or ""))] if wide else []
        table.add_row(_status(record, now), *scope, *cells, *process, *_tail(record, now, NOTE_LENGTH[wide]))
    return table


def _tail(record: Record, now: Instant, longest: int) -> tuple[str, str, Text]:
    remark = note(record, now)
    remark.truncate(longest, overflow="ellipsis")
    return human(now - record.created_at), str(record.attempt), remark


def _status(record: Record, now: Instant) -> Text:
    colour = "bold yellow" if record.lapsed(now) else COLOURS[record.status]
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


def print_record(record: Record, now: Instant, *, result: bool) -> None:
    """One record in full: its fields, its result when asked for, and what people decided about it."""
    console = Console()
    title = Text.assemble((plain(record.key.operation), "bold"), " ", (plain(record.key.value), "bold"))
    console.print(title, Text("of"), Text(plain(record.key.scope)), Text("·"), _status(record, now))
    console.print(Padding(_fields(record, now), (1, 0, 0, 2)))
    for name, text in _bodies(record, result=result):
        console.print(Text(f"\n{name}", style="bold"))
        console.print(Padding(text, (0, 0, 0, 2)))
    console.print(Text("\nTimeline", style="bold"))
    console.print(Padding(timeline(record, now, record.status.value), (0, 0, 0, 2)))


def _fields(record: Record, now: Instant) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("note", note(record, now))
    for name, value in full(record, now, result=False).items():
        if value is not None and name not in _ELSEWHERE:
            table.add_row(name, Text(_cell(name, value, record, now)))
    return table


_ELSEWHERE = frozenset(
    (
        "scope",
        "operation_name",
        "idempotency_key",
        "status",
        "created_at",
        "updated_at",
        "evidence",
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


def parsed(text: str | None) -> Any:
    """The JSON value of `text`; a codec that encrypts stores other text, which is given as it is."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def indented(text: str) -> str:
    """JSON text over several lines; any other text as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def plain(text: str, keep: str = "") -> str:
    """`text` with whatever could steer a terminal or turn its direction shown as an escape."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() or mark in keep else ascii(mark)[1:-1] for mark in text)
