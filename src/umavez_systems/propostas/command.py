"""`umavez propostas`: remove what is remembered of operations when its time is over."""

from __future__ import annotations

from typing import Annotated

import typer

from umavez_systems.settings import settings_of

group = typer.Typer(no_args_is_help=True, help="Clientes and propostas: what is remembered of their operations.")
Place = Annotated[str | None, typer.Option(help="sqlite:///file.db or postgresql://… [UMAVEZ_DATABASE]")]


@group.callback()
def propostas() -> None:
    """Clientes and propostas: what is remembered of their operations."""


@group.command("sweep")
def sweep(database: Place = None) -> None:
    """Remove rows of idempotencia_operacoes that are older than UMAVEZ_KEEP_SECONDS, as the server does by itself.

    Example:

        umavez propostas sweep --database postgresql:///propostas
    """
    from umavez_systems.server import prepare  # noqa: PLC0415  # heavy, and of use to this command only
    from umavez_systems.web import Carrier  # noqa: PLC0415  # the same

    settings = settings_of({"database": database}, there=True)
    prepare(settings)
    carrier = Carrier(settings)
    try:
        typer.echo(f"{carrier.propostas.sweep()} operations removed.")
    finally:
        carrier.close()
