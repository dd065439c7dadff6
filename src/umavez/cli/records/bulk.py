"""`umavez records resolve|release --where`: one decision about many records, as the console takes it.

Without `--count` nothing is done: what would be decided about is shown, with the words that go on. `--before` is when
it was shown, by the store's clock: what changed later is left alone.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from umavez._sync.once import Once
from umavez.cli.decisions import refuse_unsigned
from umavez.cli.durations import written
from umavez.cli.records.outcome import AsWritten, sealed
from umavez.cli.screen.table import columns, plain, print_list
from umavez.console.books import Books
from umavez.console.decisions import SHORTEST_REASON, Decisions, Deed
from umavez.console.orders.choosing import FREE, Order, Porter, Sight, Tally, chosen, place_order
from umavez.console.people import Who
from umavez.console.search import Search, Unreadable, parsed
from umavez.core.record import Instant
from umavez.errors import ConfigurationError, UmavezError

Where = Annotated[
    str | None,
    typer.Option(metavar="SEARCH", help="Many at once: those that a search finds, such as 'status:unknown op:charge'."),
]
Count = Annotated[int | None, typer.Option(min=1, help="With --where: how many were shown, and are to be decided.")]
Before = Annotated[str | None, typer.Option(metavar="TIME", help="With --where: when they were shown.")]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Wanted(NamedTuple):
    """What is asked for: which records, how many of them at which time, and what is decided about them."""

    where: str
    number: int | None
    before: str | None
    action: str
    by: str
    reason: str
    answer: Mapping[str, str] = {}


def decide_all(url: str, wanted: Wanted) -> None:
    """Show what would be decided about; or decide, where the number and the time of what was shown are given."""
    refuse_unsigned(wanted.by, wanted.reason)
    if len(wanted.reason.strip()) < SHORTEST_REASON:
        raise ConfigurationError(f"--reason takes at least {SHORTEST_REASON} characters where many are decided about.")
    search = _search(wanted.where)
    before = _instant(wanted.before)
    with Once(url, scope="umavez.console", codec=sealed(AsWritten())) as once, closing(Books(once, url)) as books:
        found = chosen(books, search, wanted.action, before)
        if wanted.number is None or before is None:
            _show([(record.key.operation, record.error or "") for record in found.records], found.now)
            if found.for_two:
                print(f"Left out: {found.for_two:,} that two people decide about, each in the console.")
            return
        if len(found.records) != wanted.number:
            raise UmavezError(
                f"{len(found.records):,} of them are unchanged, not {wanted.number:,}; nothing was done. Look again."
            )
        decisions = Decisions(books, as_written=True)
        order = Order(
            wanted.by.strip(), "command line", wanted.action, search.text, wanted.reason.strip(),
            Sight.of(found.records), found.now, wanted.answer,
        )  # fmt: skip
        _carry_out(books, decisions, order)


def _carry_out(books: Books, decisions: Decisions, order: Order) -> None:
    name = secrets.token_urlsafe(16)
    who = Who(order.who, frozenset())
    place_order(decisions, Deed(who, order.address, "bulk", name, name, str(order.at), order.reason), order)
    porter = Porter(books, decisions, name, order)
    for tally in porter.steps():
        _progress(tally)
    _told(porter.tally, order)
    if porter.tally.failed:
        raise UmavezError(f"{porter.tally.failed:,} could not be decided: {porter.tally.errors[0][1]}")


def _progress(tally: Tally) -> None:
    if sys.stderr.isatty():
        end = "\r" if tally.rest else "\n"
        print(f"{tally.total - tally.rest:,} of {tally.total:,}", end=end, file=sys.stderr, flush=True)


def _told(tally: Tally, order: Order) -> None:
    what = "not happened; their keys are free" if order.action == FREE else "happened"
    print(f"{tally.done:,} recorded as {what}; {tally.changed:,} passed over, changed meanwhile.")


def _show(found: list[tuple[str, str]], now: Instant) -> None:
    table = columns("OPERATION", "ERROR", "RECORDS>")
    for (operation, error), many in Counter(found).most_common(20):
        table.add_row(Text(plain(operation)), Text(plain(error[:200])), f"{many:,}")
    print_list(table, "group", "groups")
    if found:
        line = f"Nothing was done. To decide about them: --count {len(found)} --before {written(now)}"
        Console().print(Text(line), soft_wrap=True)


def _search(text: str) -> Search:
    try:
        return parsed(text)
    except Unreadable as unread:
        raise ConfigurationError(f"--where: {unread}") from unread


def _instant(text: str | None) -> Instant | None:
    if text is None:
        return None
    if not _TIME.fullmatch(text):
        raise ConfigurationError("--before is not a time as it was shown; copy it from there.")
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
