"""`umavez sequences list|show|block|open`: numbers that are given once. No command here gives one."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from umavez.cli.options import AsJson, StoreUrl, existing_url
from umavez.cli.sequences import view as sequences_view
from umavez.errors import ConfigurationError
from umavez.sequences import Sequences
from umavez.sequences.errors import SeriesUnknown
from umavez.sequences.flows import Series
from umavez.sequences.names import checked
from umavez.sequences.ranges import ENDLESS
from umavez.sequences.standing import Standing, standings
from umavez.sql.connection import Sql
from umavez.sql.database import reading, writing
from umavez.sql.flow import carry

group = typer.Typer(no_args_is_help=True, help="Look at series of numbers, and block or open ranges of them.")

Organisation = Annotated[str, typer.Argument(metavar="ORGANISATION", help="Whose numbers.")]
SeriesName = Annotated[str, typer.Argument(metavar="SERIES", help="Which of its series.")]
First = Annotated[int, typer.Argument(metavar="FIRST", min=0, help="The first number of the range.")]


def add(app: typer.Typer) -> None:
    """Put the group on `app`."""
    app.add_typer(group, name="sequences")
    group.command("list")(list_sequences)
    group.command("show")(show_sequence)
    group.command("block")(block_range)
    group.command("open")(open_range)


def list_sequences(
    store: StoreUrl = None,
    organisation: Annotated[str | None, typer.Option(help="Only of this organisation.")] = None,
    series: Annotated[str | None, typer.Option(help="Only the series of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, by name.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List series: the number that comes next, the last that was given, how many are left, and what is blocked.

    \b
    Examples:
      umavez sequences list
      umavez sequences list --organisation loja --json
    """
    with reading(existing_url(store), "sequences") as connection:
        # One more than is shown tells whether there are more.
        found = carry(standings(organisation, series, limit + 1), Sql.on(connection))
    shown, more = found[:limit], len(found) > limit
    if as_json:
        print(json.dumps({"sequences": [sequences_view.brief(one) for one in shown], "more": more}, indent=2))
    else:
        sequences_view.print_list(shown, more=more)


def show_sequence(
    organisation: Organisation, series: SeriesName, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Show one series with its ranges, and the given numbers that will not be used.

    \b
    Examples:
      umavez sequences show loja invoices
      umavez sequences show loja invoices --json
    """
    name = checked(organisation, series)
    with reading(existing_url(store), "sequences") as connection:
        standing = _standing(connection, name)
        voided = Sequences().voided(connection, *name)
    if as_json:
        print(json.dumps(sequences_view.full(standing, voided), indent=2))
    else:
        sequences_view.print_series(standing, voided)


def _standing(connection: Any, name: Series) -> Standing:
    found = carry(standings(*name, 1), Sql.on(connection))
    if not found:
        raise SeriesUnknown(*name)
    return found[0]


def block_range(
    organisation: Organisation,
    series: SeriesName,
    first: First,
    last: Annotated[int, typer.Argument(metavar="LAST", min=0, help="The last; FIRST again for one number.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with the range.")],
    store: StoreUrl = None,
) -> None:
    """Never give the numbers from FIRST to LAST. Numbers that were given cannot be blocked, nor a block undone.

    \b
    Example:
      umavez sequences block loja invoices 5000 5999 --reason "printed forms"
    """
    if not reason.strip():
        raise ConfigurationError("--reason must not be empty; it is kept with the range.")
    name = checked(organisation, series)
    _refuse_huge(first, last)
    with writing(existing_url(store), "sequences") as connection:
        Sequences().block_range(connection, *name, first, last, reason=reason)
    print(f"{sequences_view.numbers(first, last)} of {series!r} of {organisation!r} will never be given.")


def open_range(
    organisation: Organisation,
    series: SeriesName,
    first: First,
    last: Annotated[
        int, typer.Argument(metavar="LAST", min=0, show_default=False, help="The last; without it, no end.")
    ] = ENDLESS,
    store: StoreUrl = None,
) -> None:
    """Let a series go on with the numbers from FIRST to LAST. What is blocked stays blocked.

    \b
    Examples:
      umavez sequences open loja invoices 10000 19999
      umavez sequences open loja tickets 1000
    """
    name = checked(organisation, series)
    _refuse_huge(first, last)
    with writing(existing_url(store), "sequences") as connection:
        Sequences().open_range(connection, *name, first, last)
    print(f"{sequences_view.numbers(first, last)} of {series!r} of {organisation!r} may be given.")


def _refuse_huge(first: int, last: int) -> None:
    """Raise ConfigurationError for a number beyond the last that a series can have."""
    if max(first, last) > ENDLESS:
        raise ConfigurationError(f"A number is at most {ENDLESS}; leave LAST out of open for a range without an end.")
