"""`umavez observe dashboard|alerts|serve`: what operators look at, and what wakes them."""

from __future__ import annotations

import threading
from contextlib import closing
from importlib.resources import files
from typing import Annotated

import typer

from umavez.cli.options import StoreUrl, existing_url, open_to_look, shown
from umavez.cli.stopping import until_stopped
from umavez.errors import ConfigurationError

group = typer.Typer(no_args_is_help=True, help="Dashboard and alerts for Prometheus, and the store's own numbers.")


def add(app: typer.Typer) -> None:
    """Put the group on `app`."""
    app.add_typer(group, name="observe")
    group.command("dashboard")(dashboard)
    group.command("alerts")(alerts)
    group.command("serve")(until_stopped(serve))


def dashboard() -> None:
    """Print a dashboard for Grafana: import it, and choose your Prometheus.

    \b
    Example:
      umavez observe dashboard > umavez.json
    """
    print(shipped("dashboard.json"), end="")


def alerts() -> None:
    """Print alerting rules for Prometheus.

    \b
    Example:
      umavez observe alerts > /etc/prometheus/rules/umavez.yml
    """
    print(shipped("alerts.yml"), end="")


def shipped(name: str) -> str:
    """A file of the package."""
    return files("umavez.observe").joinpath(f"shipped/{name}").read_text("utf-8")


def serve(
    store: StoreUrl = None,
    host: Annotated[str, typer.Option(help="Address to listen on. There is no password.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any.")] = 9464,
) -> None:
    """Tell Prometheus what stands in the store: unknown outcomes, messages that wait, numbers that run out.

    For applications that do not answer /metrics themselves, and for stores that several of them share. It only looks.

    \b
    Example:
      umavez observe serve --store postgresql:///loja --port 9464
    """
    url = existing_url(store)
    try:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - only where it is asked for

        from umavez.observe.standing import StoreMetrics  # noqa: PLC0415 - as above
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"Metrics need {missing.name}, which is not installed; run: pip install 'umavez[metrics]'."
        ) from missing
    registry = CollectorRegistry()
    with open_to_look(url) as opened:
        StoreMetrics(opened, registry, url=url)
        try:
            server, _ = start_http_server(port, host, registry)
        except OSError as taken:
            raise ConfigurationError(f"{host}:{port} cannot be served ({taken.strerror}); choose another.") from taken
        with closing(server.socket):
            place = f"{host}:{server.server_port}"
            print(f"The numbers of {shown(url)} are at http://{place}/metrics (Ctrl-C ends it)", flush=True)
            threading.Event().wait()
