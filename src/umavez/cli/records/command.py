"""`umavez records list|show`: look at records."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated

import typer
from rich.console import Console

from umavez._sync.once import Once
from umavez.cli.options import AsJson, OlderThan, StoreUrl, existing_url, open_to_look
from umavez.cli.paging import After, Limit, NewestFirst, Selection, select
from umavez.cli.records import view as records_view
from umavez.cli.screen.table import columns
from umavez.cli.screen.timeline import past_of
from umavez.cli.screen.watching import Watch, watched
from umavez.console.books import Books, Count
from umavez.core.key import Key
from umavez.core.record import Query, Status
from umavez.core.resolution import NoSuchRecord

group = typer.Typer(no_args_is_help=True, help="List, show, resolve and release records.")

Scope = Annotated[str, typer.Argument(metavar="SCOPE", help="Whose operation it is.")]
OperationName = Annotated[str, typer.Argument(metavar="OPERATION", help="What the operation is called.")]
KeyValue = Annotated[str, typer.Argument(metavar="KEY", help="Which one. Write -- before a key that begins with -.")]
COUNTED = {"unknown": "unknown", "lapsed": "holder gone", "failed": "failed, begun within the hour"}


def add(app: typer.Typer) -> None:
    """Put the group on `app`."""
    app.add_typer(group, name="records")
    group.command("list")(list_records)
    group.command("show")(show_record)
    group.command("count")(count_records)


def list_records(
    store: StoreUrl = None,
    scope: Annotated[str | None, typer.Option(help="Only of this scope.")] = None,
    operation: Annotated[str | None, typer.Option(help="Only this operation.")] = None,
    key: Annotated[str | None, typer.Option(help="Only this key.")] = None,
    process_instance: Annotated[str | None, typer.Option(help="Only of this process instance.")] = None,
    status: Annotated[Status | None, typer.Option(case_sensitive=False, help="Only with this status.")] = None,
    older_than: OlderThan = None,
    lapsed: Annotated[bool, typer.Option("--lapsed", help="Only what is pending and whose holder is gone.")] = False,
    limit: Limit = 100,
    after: After = None,
    newest_first: NewestFirst = True,
    watch: Watch = None,
    as_json: AsJson = False,
) -> None:
    """List records, the newest first unless told otherwise. Results are never part of the list.

    \b
    Examples:
      umavez records list --status unknown
      umavez records list --scope loja --operation charge --older-than 2h
      umavez records list --lapsed --json | jq -r '.records[].idempotency_key'
      umavez records list --status pending --watch 2s
    """
    age = None if older_than is None else int(older_than * 1000)
    query = Query(scope, operation, key, process_instance, status, age, lapsed, limit, after, newest_first)
    with open_to_look(store) as records:
        watched(watch, lambda: _print(select(records, query), as_json=as_json))


def _print(found: Selection, *, as_json: bool) -> None:
    if as_json:
        brief = [records_view.brief(record) for record in found.records]
        print(json.dumps({"records": brief, "more": found.next is not None, "next": found.next}, indent=2))
    else:
        records_view.print_list(found)


def count_records(store: StoreUrl = None, watch: Watch = None, as_json: AsJson = False) -> None:
    """Count what somebody should look at, as far as an index leads: unknown, holder gone, failed within the hour.

    A hyphen stands where counting took too long, or where the store has no index for it.

    \b
    Examples:
      umavez records count
      umavez records count --watch 5s
    """
    url = existing_url(store)
    with open_to_look(url) as records, closing(Books(Once(records, scope="umavez.console"), url)) as books:
        watched(watch, lambda: _print_counts(_counted(books), as_json=as_json))


def _counted(books: Books) -> dict[str, Count]:
    """Raises StoreError where the store does not answer at all: no number is no reason to sleep well."""
    books.now()
    return {name: books.number(name) for name in COUNTED}


def _print_counts(counts: dict[str, Count], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({name: {"number": count.number, "more": count.more} for name, count in counts.items()}))
        return
    table = columns("STATE|", "RECORDS>")
    for name, count in counts.items():
        number = "-" if count.number is None else f"{count.number:,}{'+' if count.more else ''}"
        table.add_row(COUNTED[name], number)
    Console().print(table)


def show_record(
    scope: Scope,
    operation: OperationName,
    key: KeyValue,
    store: StoreUrl = None,
    result: Annotated[
        bool, typer.Option("--result", help="Also the result and progress, which may hold personal data.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show all that is recorded under one key, with the decisions taken about it.

    \b
    Examples:
      umavez records show loja charge order-42
      umavez records show loja charge order-42 --result --json
    """
    name = Key(scope, operation, key)
    with open_to_look(store) as records:
        seen = records.read(name)
        past = past_of(records, name)
    if seen.current is None:
        raise NoSuchRecord(name)
    if as_json:
        print(json.dumps(records_view.full(seen.current, seen.now, result=result, past=past), indent=2))
    else:
        records_view.print_record(seen.current, seen.now, result=result, past=past)
