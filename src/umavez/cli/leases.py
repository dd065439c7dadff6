"""`umavez leases list|show|release`: who may work on what, and taking that right away by decision."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from umavez.attempt import drive
from umavez.cli import leases_view
from umavez.cli.durations import human
from umavez.cli.leases_view import LeaseState
from umavez.cli.options import AsJson, StoreUrl, named, opened
from umavez.cli.records_change import By, Reason, refuse_unsigned
from umavez.cli.selection import selected
from umavez.core import lease as flows
from umavez.core.key import Key
from umavez.core.lease import KEEP, OPERATION
from umavez.core.record import Instant, Query, Record
from umavez.core.resolution import NoSuchRecord
from umavez.errors import OperationInProgress, UmavezError
from umavez.once import Once
from umavez.stamps import STAMPS

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
    limit: Annotated[int, typer.Option(min=1, help="At most so many, oldest first.")] = 100,
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

    with opened(store) as records:
        found = selected(records, Query(kind, OPERATION), wanted, limit)
    if as_json:
        leases = [leases_view.brief(record, found.now) for record in found.records]
        print(json.dumps({"leases": leases, "more": found.more}, indent=2))
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
    with opened(store) as records:
        seen = records.read(key)
    if seen.current is None or not leases_view.is_lease(seen.current):
        raise NoSuchRecord(key)
    if as_json:
        print(json.dumps(leases_view.full(seen.current, seen.now), indent=2))
    else:
        leases_view.print_lease(seen.current, seen.now)


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
    with Once(named(store), scope=kind) as once:
        seen = once.store.read(key)
        if seen.current is None or not leases_view.is_lease(seen.current):
            raise NoSuchRecord(key)
        if leases_view.state_of(seen.current, seen.now) is LeaseState.RELEASED:
            print(f"{key} is free already; nothing was changed.")
            return
        if force:
            drive(flows.take_away(key, by, reason, STAMPS.owner()), once.store)
        else:
            _released(once, key, by, reason)
    print(f"{key} is free.")


def _released(once: Once, key: Key, by: str, reason: str) -> None:
    once.plans.declared(OPERATION, {"unknown": "rerun", "keep": KEEP})
    try:
        once.release(OPERATION, key.value, by=by, reason=reason)
    except OperationInProgress as held:
        left = human(int(held.retry_after * 1000))
        raise UmavezError(
            f"{key} is held for {left} more unless its holder renews it; wait, or pass --force to take it away."
        ) from held
