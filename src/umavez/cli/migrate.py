"""`umavez migrate`: create or upgrade the tables."""

from __future__ import annotations

import typer

from umavez.cli.database import holds_tables
from umavez.cli.options import StoreUrl, named, opened

INSTRUMENTS = (
    "Messages and numbers have tables of their own: run umavez outbox migrate or umavez sequences migrate to use them."
)
"""What else there is to make, where there are tables at all."""


def add(app: typer.Typer) -> None:
    """Put the command on `app`."""
    app.command()(migrate)


def migrate(store: StoreUrl = None) -> None:
    """Create or upgrade the tables of a store. Safe to repeat.

    \b
    Examples:
      umavez migrate --store sqlite:///loja.db
      UMAVEZ_STORE=postgresql://user@host/loja umavez migrate
    """
    with opened(store) as records:
        print(records.migrate())
    if holds_tables(named(store)):
        print(INSTRUMENTS)
