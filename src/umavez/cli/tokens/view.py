"""Tokens as JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from umavez.cli.durations import written
from umavez.cli.paging import Selection
from umavez.cli.screen.table import Cell, columns, fields, heading, indent, indented, parsed, plain
from umavez.cli.screen.table import print_list as print_table
from umavez.cli.screen.timeline import Past, distance, evidence, timeline
from umavez.core.record import Instant, Record
from umavez.core.token import UNUSED, TokenState, expiry, state
from umavez.core.token_errors import TokenUnknown

COLOURS = {
    TokenState.UNUSED: "cyan",
    TokenState.RUNNING: "cyan",
    TokenState.USED: "green",
    TokenState.EXPIRED: "dim",
    TokenState.CANCELLED: "dim",
    TokenState.UNKNOWN: "bold magenta",
}
ROOM = 140
"""Columns that the list may take at least: a digest that the terminal wraps can still be copied, a cut one cannot."""


def state_of(record: Record, now: Instant) -> TokenState | None:
    """Where the token of `record` stands at `now`; None for a record that is no token's."""
    try:
        return state(record, now)
    except (TokenUnknown, ValueError, TypeError, LookupError):
        # Evidence that does not begin as a token's does, in whatever form somebody wrote it.
        return None


def brief(record: Record, now: Instant) -> dict[str, Any]:
    """A token for machines, without its payload and what its use created. `expires_at` ends the time to redeem it."""
    return {
        "scope": record.key.scope,
        "purpose": record.key.operation,
        "digest": record.key.value,
        "owner": record.process_instance,
        "state": state(record, now).value,
        "expires_at": written(expiry(record)),
        "created_at": written(record.created_at),
        "updated_at": written(record.updated_at),
    }


def full(record: Record, now: Instant, *, payload: bool) -> dict[str, Any]:
    """All there is to say about a token; its payload only when asked for."""
    shown = brief(record, now) | {
        "attempt": record.attempt,
        "error_message": error_of(record),
        "swept_after": written(record.expires_at),
        "evidence": evidence(record),
    }
    return shown | ({"payload": parsed(record.progress)} if payload else {})


def error_of(record: Record) -> str | None:
    """What the last redemption failed with, if one did."""
    return None if record.error in (UNUSED, TokenState.CANCELLED, TokenState.EXPIRED) else record.error


def print_list(found: Selection) -> None:
    """A table of tokens."""
    table = columns("STATE|", "SCOPE", "PURPOSE", "OWNER", "EXPIRES>", "DIGEST|")
    for record in found.records:
        key = record.key
        texts = (key.scope, key.operation, record.process_instance or "")
        when = distance(expiry(record), found.now)
        table.add_row(_state(record, found.now), *(Text(plain(text)) for text in texts), when, Text(plain(key.value)))
    print_table(table, "token", "tokens", following=found.next, room=ROOM)


def _state(record: Record, now: Instant) -> Text:
    where = state(record, now)
    return Text(where.value, style=COLOURS[where])


def print_token(record: Record, now: Instant, past: Past, *, payload: bool) -> None:
    """One token in full: its payload when asked for, and what people decided about it."""
    console = Console()
    title = Text.assemble((plain(record.key.operation), "bold"), " of ", plain(record.key.scope), " · ")
    console.print(title + _state(record, now))
    console.print(fields(_fields(record, now)))
    if record.progress is not None:
        hidden = Text("hidden, since it may hold personal data; see --payload", style="dim")
        console.print(heading("Payload"))
        console.print(indent(Text(plain(indented(record.progress), keep="\n")) if payload else hidden))
    console.print(heading("Timeline"))
    console.print(indent(timeline(record, now, past)))


def _fields(record: Record, now: Instant) -> Iterator[tuple[str, Cell | None]]:
    error = error_of(record)
    yield "owner", Text(plain(record.process_instance or ""))
    yield "digest", Text(plain(record.key.value))
    yield "expires_at", f"{written(expiry(record))} ({distance(expiry(record), now)})"
    yield "attempt", str(record.attempt)
    yield "error", Text(plain(error)) if error else None
