"""`umavez migrate`: create or upgrade every table, the engine's and the systems'."""

from __future__ import annotations

from typing import Annotated

import typer

from umavez.cli.extensions import migrations
from umavez.cli.options import StoreUrl, named
from umavez.migration import migrate as migrate_all
from umavez.stores import as_made


def add(app: typer.Typer) -> None:
    """Put the command on `app`."""
    app.command()(migrate)


def migrate(
    store: StoreUrl = None,
    systems: Annotated[
        bool, typer.Option(help="Also the tables of the systems, where they are installed and the database holds them.")
    ] = True,
) -> None:
    """Create or upgrade every table: records, messages, sequences and the systems'. Safe to repeat, and from several
    hosts at once.

    \b
    Examples:
      umavez migrate --store 'sqlite:///loja.db?journal=delete'
      UMAVEZ_STORE=postgresql://user@host/loja umavez migrate
    """
    for sentence in migrate_all(as_made(named(store)), *(migrations() if systems else ())):
        print(sentence)
