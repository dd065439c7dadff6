"""`umavez serve`: the server's command, found by the command line through its entry point."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from umavez.cli.stopping import mark_lasting, until_stopped
from umavez_systems.corridas.command import group as corridas
from umavez_systems.fiscal.command import group as fiscal
from umavez_systems.mailing.command import group as mailing
from umavez_systems.processos import command as processos
from umavez_systems.propostas.command import group as propostas
from umavez_systems.settings import MULTIPROCESS, Settings, settings_of


def add(app: typer.Typer) -> None:
    """Add the commands to the `umavez` command line."""
    app.command("serve")(until_stopped(serve))
    mark_lasting(mailing, ["work"])
    mark_lasting(processos.group, ["work", "portal"], unless="once")
    mark_lasting(fiscal, ["simular"])
    app.add_typer(propostas, name="propostas")
    app.add_typer(corridas, name="corridas")
    app.add_typer(mailing, name="mailing")
    app.add_typer(fiscal, name="fiscal")
    processos.add(app)


def migrate(url: str) -> str:
    """The systems' tables, for `umavez migrate`."""
    from umavez_systems.migrations import migrate as systems  # noqa: PLC0415  # heavy, and of use to few commands

    return systems(url)


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
    given = {"database": database, "host": host, "port": port, "workers": workers}
    try:
        settings = settings_of(given)
        settings.refuse_open_door()
        settings.export()
        _prepare(settings)
    except ValueError as error:
        typer.echo(f"umavez serve: {error}", err=True)
        sys.exit(2)
    _serve(settings)


def _prepare(settings: Settings) -> None:
    from umavez_systems.gates.usable import refuse_unusable  # noqa: PLC0415  # the same
    from umavez_systems.server import prepare  # noqa: PLC0415  # heavy: a wrong setting is told before

    refuse_unusable(settings)
    prepare(settings)


def _serve(settings: Settings) -> None:
    import uvicorn  # noqa: PLC0415  # heavy, and of use to this command only
    from uvicorn.supervisors import Multiprocess  # noqa: PLC0415  # the same

    from umavez_systems.gates.connections import options  # noqa: PLC0415  # the same
    from umavez_systems.logs import LINES  # noqa: PLC0415  # the same

    try:
        listener = _listen(settings.host, settings.port)
    except OSError as error:
        typer.echo(
            f"umavez serve: {settings.host}:{settings.port} cannot be listened on ({error.strerror}); name another.",
            err=True,
        )
        sys.exit(2)
    config = uvicorn.Config(
        "umavez_systems.server:create_served_app",
        factory=True,
        workers=settings.workers,
        log_config=LINES,
        **options(settings),
    )
    typer.echo(_greeting(settings, listener.getsockname()[1]))
    if settings.workers == 1:
        uvicorn.Server(config).run(sockets=[listener])
        return
    with _shared_counters():
        Multiprocess(config, sockets=[listener]).run()


@contextmanager
def _shared_counters() -> Iterator[None]:
    """A folder in which the workers' counters are summed, whichever of them is scraped; gone with the server."""
    if MULTIPROCESS in os.environ:
        yield
        return
    with TemporaryDirectory(prefix="umavez-metrics-") as folder:
        os.environ[MULTIPROCESS] = folder
        try:
            yield
        finally:
            del os.environ[MULTIPROCESS]


def _listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections already: what is said to be served can be reached."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=2048)
    listener.set_inheritable(True)  # for the workers
    return listener


def _greeting(settings: Settings, port: int) -> str:
    who = ", ".join(settings.principals) or "everyone on this machine, as 'local' (set UMAVEZ_API_KEYS to change that)"
    return (
        f"umavez serves http://{f'[{settings.host}]' if ':' in settings.host else settings.host}:{port}\n"
        f"  database   {settings.shown_database}\n"
        f"  workers    {settings.workers}\n"
        f"  principals {who}\n"
        "  stop with Ctrl-C"
    )
