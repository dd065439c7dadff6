"""Tokens as JSON and as tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from umavez.cli.durations import written
from umavez.cli.records_view import distance, evidence, footing, indented, parsed, plain, timeline
from umavez.cli.selection import Selection
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
    console = Console()
    if not found.records:
        console.print("No tokens match.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("STATE", no_wrap=True)
    for name in ("SCOPE", "PURPOSE", "OWNER"):
        table.add_column(name, overflow="fold")
    table.add_column("EXPIRES", justify="right", no_wrap=True)
    table.add_column("DIGEST", no_wrap=True)
    for record in found.records:
        key = record.key
        texts = (key.scope, key.operation, record.process_instance or "")
        when = distance(expiry(record), found.now)
        table.add_row(_state(record, found.now), *(Text(plain(text)) for text in texts), when, Text(plain(key.value)))
    Console(width=max(console.width, ROOM)).print(table)
    console.print(footing(len(found.records), "token", "tokens", more=found.more))


def _state(record: Record, now: Instant) -> Text:
    where = state(record, now)
    return Text(where.value, style=COLOURS[where])


def print_token(record: Record, now: Instant, *, payload: bool) -> None:
    """One token in full: its payload when asked for, and what people decided about it."""
    console = Console()
    title = Text.assemble((plain(record.key.operation), "bold"), " of ", plain(record.key.scope), " · ")
    console.print(title + _state(record, now))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("owner", Text(plain(record.process_instance or "")))
    table.add_row("digest", Text(plain(record.key.value)))
    table.add_row("expires_at", f"{written(expiry(record))} ({distance(expiry(record), now)})")
    table.add_row("attempt", str(record.attempt))
    if error := error_of(record):
        table.add_row("error", Text(plain(error)))
    console.print(Padding(table, (1, 0, 0, 2)))
    if record.progress is not None:
        hidden = Text("hidden, since it may hold personal data; see --payload", style="dim")
        console.print(Text("\nPayload", style="bold"))
        text = Text(plain(indented(record.progress), keep="\n")) if payload else hidden
        console.print(Padding(text, (0, 0, 0, 2)))
    console.print(Text("\nTimeline", style="bold"))
    console.print(Padding(timeline(record, now, state(record, now).value), (0, 0, 0, 2)))
