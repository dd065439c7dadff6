"""`umavez leases list|show|release`: who may work on what, and taking that right away by decision."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from umavez._sync.attempt import drive
from umavez._sync.once import Once
from umavez.cli.decisions import By, Reason, refuse_unsigned, release_key
from umavez.cli.durations import human
from umavez.cli.leases import view as leases_view
from umavez.cli.leases.view import LeaseState
from umavez.cli.options import AsJson, StoreUrl, existing_url, open_to_look
from umavez.cli.paging import After, Limit, NewestFirst, select
from umavez.cli.screen.timeline import past_of
from umavez.core import lease as flows
from umavez.core.key import Key
from umavez.core.lease import OPERATION
from umavez.core.record import Instant, Query, Record
from umavez.core.resolution import NoSuchRecord
from umavez.engine.stamps import STAMPS
from umavez.errors import OperationInProgress, UmavezError

group = typer.Typer(no_args_is_help=True, help="List, show and release named leases.")

Kind = Annotated[str, typer.Argument(metavar="KIND", help="What is leased: the scope of the engine, or kind=.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Which lease. Write -- before a name that begins with -.")]


def add(app: typer.Typer) -> None:
    """Put the group on `app`."""
    app.add_typer(group, name="leases")
    group.command("list")(list_leases)
    group.command("show")(show_lease)
    group.command("release")(release)


def list_leases(
    store: StoreUrl = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind.")] = None,
    state: Annotated[LeaseState | None, typer.Option(case_sensitive=False, help="Only in this state.")] = None,
    limit: Limit = 100,
    after: After = None,
    newest_first: NewestFirst = True,
    as_json: AsJson = False,
) -> None:
    """List named leases: whether each is held, under which fence, and until when without another heartbeat.

    A released lease is listed for a day. Row leases stand in your own tables and are not listed.

    \b
    Examples:
      umavez leases list
      umavez leases list --kind jobs --state lapsed --json
    """

    def wanted(record: Record, now: Instant) -> bool:
        return leases_view.is_lease(record) and state in (None, leases_view.state_of(record, now))

    with open_to_look(store) as records:
        query = Query(kind, OPERATION, limit=limit, after=after, newest_first=newest_first)
        found = select(records, query, wanted)
    if as_json:
        leases = [leases_view.brief(record, found.now) for record in found.records]
        print(json.dumps({"leases": leases, "more": found.next is not None, "next": found.next}, indent=2))
    else:
        leases_view.print_list(found)


def show_lease(kind: Kind, name: Name, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Show one lease, with the decisions taken about it.

    \b
    Examples:
      umavez leases show jobs nightly-report
      umavez leases show jobs nightly-report --json
    """
    key = Key(kind, OPERATION, name)
    with open_to_look(store) as records:
        seen, past = records.read(key), past_of(records, key)
    if seen.current is None or not leases_view.is_lease(seen.current):
        raise NoSuchRecord(key)
    if as_json:
        print(json.dumps(leases_view.full(seen.current, seen.now), indent=2))
    else:
        leases_view.print_lease(seen.current, seen.now, past)


def release(
    kind: Kind,
    name: Name,
    by: By,
    reason: Reason,
    force: Annotated[
        bool, typer.Option("--force", help="Also while it is held. Its holder learns of it at its next heartbeat.")
    ] = False,
    store: StoreUrl = None,
) -> None:
    """Free a lease, so that the next who asks gets it, with a higher fence.

    \b
    Examples:
      umavez leases release jobs nightly-report --by ana --reason "host is off"
      umavez leases release jobs nightly-report --force \\
          --by ana --reason "it hangs"
    """
    refuse_unsigned(by, reason)
    key = Key(kind, OPERATION, name)
    with Once(existing_url(store), scope=kind) as once:
        seen = once.store.read(key)
        if seen.current is None or not leases_view.is_lease(seen.current):
            raise NoSuchRecord(key)
        if leases_view.state_of(seen.current, seen.now) is LeaseState.RELEASED:
            print(f"{key} is free already; nothing was changed.")
            return
        if force:
            drive(flows.take_away(key, by, reason, STAMPS.owner()), once.store)
        else:
            _release(once, key, by, reason)
    print(f"{key} is free.")


def _release(once: Once, key: Key, by: str, reason: str) -> None:
    try:
        release_key(once, key, by, reason)
    except OperationInProgress as held:
        left = human(int(held.retry_after * 1000))
        raise UmavezError(
            f"{key} is held for {left} more unless its holder renews it; wait, or pass --force to take it away."
        ) from held
