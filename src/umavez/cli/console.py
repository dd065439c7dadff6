"""`umavez console`: the console alone, in a browser; and `umavez console-user`: who may sign in to it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any

import typer

from umavez._sync.once import Once
from umavez.cli.options import StoreUrl, existing_url, shown
from umavez.cli.reconcile import load_engine
from umavez.cli.records.outcome import AsWritten, sealed
from umavez.cli.stopping import until_stopped
from umavez.console import console as made
from umavez.console import loopback
from umavez.console.people import VARIABLE, entry, refuse_unfit, users
from umavez.errors import ConfigurationError
from umavez.observe.minutes import Minutes


def add(app: typer.Typer) -> None:
    """Put the commands on `app`."""
    app.command("console")(until_stopped(console))
    app.command("console-user")(console_user)


def console(
    store: StoreUrl = None,
    application: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE:NAME",
            help="An engine of your application, whose operations can then be asked about.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine people must sign in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8090,
) -> None:
    """Show every key in a browser, and decide the doubtful ones.

    On this machine everybody is `local`. With UMAVEZ_CONSOLE_USERS people sign in, and others may reach it. While it
    runs, how much stands in the store is kept once a minute, for its charts.

    \b
    Examples:
      umavez console --store sqlite:///loja.db
      umavez console --app shop.main:once --port 9000
    """
    url = existing_url(store) if store or application is None else None
    people = users()
    if not people and not _is_here(host):
        raise ConfigurationError(
            f"Beyond this machine people must sign in: set {VARIABLE}, with lines of: umavez console-user NAME."
        )
    try:
        import uvicorn  # noqa: PLC0415  # heavy, and of use to this command only
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"The console needs {missing.name}, which is not installed; run: pip install 'umavez[console]'."
        ) from missing
    if application is not None:
        engine = load_engine(application)
        url = url or engine.url
        app = made(engine, url=url, authorize=None if people else loopback, around=())
    else:
        # Nobody can ask the application for its codecs here: what is typed is kept as it is, as `records resolve` does.
        once = Once(str(url), scope="umavez.console", codec=sealed(AsWritten()))
        app = made(once, authorize=None if people else loopback, as_written=True, around=())
    # Its warnings are about requests that nobody could answer: whoever sends such would write the log.
    options: dict[str, Any] = {"log_level": "error", "proxy_headers": False, "server_header": False}
    config = uvicorn.Config(app, lifespan="off", ws="none", **options)
    with closing(app), _listening(host, port) as listener, _looking(url):
        place = f"{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        print(f"The console of {shown(url or application or '')} is at http://{place}/ (Ctrl-C ends it)", flush=True)
        uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def _looking(url: str | None) -> Iterator[None]:
    """What stands in the store is kept for the charts meanwhile, even where no other process does that."""
    if not url or url.startswith("memory:"):
        yield
        return
    with closing(Minutes(url)) as minutes:
        minutes.start()
        yield


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as taken:
        raise ConfigurationError(f"{host}:{port} cannot be listened on ({taken.strerror}); choose another.") from taken


def console_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who signs in.")],
    roles: Annotated[str, typer.Option(help="look, reveal, decide, govern; joined by +.")] = "look",
    password: Annotated[str | None, typer.Option(help="Asked for when left out.", show_default=False)] = None,
) -> None:
    """Print a line for UMAVEZ_CONSOLE_USERS: somebody who may sign in, and what they may do.

    \b
    Example:
      umavez console-user ana --roles look+reveal+decide
    """
    refuse_unfit(name, frozenset(roles.split("+")))  # before somebody types a password twice
    if password is None:
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    print(entry(name, password, roles))


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
