"""`umavez serve`: the server's command, found by the command line through its entry point."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from umavez_systems.corridas.command import group as corridas
from umavez_systems.processos import command as processos
from umavez_systems.settings import Settings


def add(app: typer.Typer) -> None:
    """Add the commands to the `umavez` command line."""
    app.command("serve")(serve)
    app.add_typer(corridas, name="corridas")
    processos.add(app)


def serve(
    database: Annotated[str | None, typer.Option(help="sqlite:///file.db or postgresql://… [UMAVEZ_DATABASE]")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on [UMAVEZ_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on [UMAVEZ_PORT]")] = None,
    workers: Annotated[int | None, typer.Option(help="Server processes [UMAVEZ_WORKERS]")] = None,
) -> None:
    """Serve every system over HTTP.

    Without options: SQLite in ./umavez.db, at http://127.0.0.1:8000, one principal called 'local'.

    Examples:

        umavez serve
        umavez serve --database postgresql:///loja --workers 2 --port 9000
    """
    import uvicorn  # noqa: PLC0415  # heavy, and of use to this command only

    from umavez_systems.server import prepare  # noqa: PLC0415  # the same

    given = {"database": database, "host": host, "port": port, "workers": workers}
    try:
        settings = Settings.model_validate({name: value for name, value in given.items() if value is not None})
        settings.refuse_open_door()
        settings.export()
        prepare(settings)
    except ValueError as error:
        typer.echo(f"umavez serve: {_sentence(error)}", err=True)
        sys.exit(2)
    typer.echo(_greeting(settings))
    uvicorn.run(
        "umavez_systems.server:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level="warning",
        access_log=False,  # it would be written at a level that is not shown, after being put together
        timeout_graceful_shutdown=30,
        server_header=False,
    )


def _sentence(error: ValueError) -> str:
    """A pydantic error in one line, without the values that were given: they may hold a password."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    found = errors(include_input=False)
    return "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in found)


def _greeting(settings: Settings) -> str:
    who = ", ".join(settings.principals) or "everyone on this machine, as 'local' (set UMAVEZ_API_KEYS to change that)"
    return (
        f"umavez serves http://{settings.host}:{settings.port}\n"
        f"  database   {settings.shown_database}\n"
        f"  workers    {settings.workers}\n"
        f"  principals {who}\n"
        "  stop with Ctrl-C"
    )
