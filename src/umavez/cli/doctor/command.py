"""`umavez doctor`: which stores can be reached, and which of their settings put records at risk."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Annotated

import typer

from umavez.cli.doctor import view as doctor_view
from umavez.cli.doctor.findings import Examination
from umavez.cli.doctor.search import standard
from umavez.cli.options import VARIABLE, AsJson, named_in_environment, scrubbed, shown
from umavez.errors import ConfigurationError
from umavez.stores import BACKENDS

EXAMINERS = {
    "umavez.stores.memory": "umavez.cli.doctor.memory",
    "umavez.stores.sqlite.store": "umavez.cli.doctor.sqlite",
    "umavez.stores.postgres.store": "umavez.cli.doctor.postgres",
    "umavez.stores.mariadb.store": "umavez.cli.doctor.mariadb",
    "umavez.stores.redis.store": "umavez.cli.doctor.redis",
}
"""The module whose `examine` knows what to ask, for each backend."""


def add(app: typer.Typer) -> None:
    """Put the command on `app`."""
    app.command()(doctor)


def doctor(
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            metavar="URL",
            show_default=False,
            help=f"A store to look at; may be repeated. Without it: {VARIABLE} and the standard ports of this machine.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also list the settings that are fine.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when there are warnings.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say which stores are reachable, and which of their settings put records at risk. Changes nothing.

    \b
    Exit codes: 0 fine, 1 warnings (with --strict), 2 a named store is not reachable.

    \b
    Examples:
      umavez doctor
      umavez doctor --store sqlite:///loja.db --all
      umavez doctor --strict --json
    """
    named = [examine(url) for url in _named(store)]
    nearby = [] if store else list(standard(examine))
    found = [examination for _, examination in nearby if examination is not None]
    absent = [product for product, examination in nearby if examination is None]
    code = _exit_code(named, found, strict=strict)
    if as_json:
        print(json.dumps(doctor_view.document([*named, *found], absent), indent=2))
    else:
        doctor_view.print_report(named, found, absent, everything=everything)
    raise typer.Exit(code)


def examine(url: str) -> Examination:
    """What is at `url`. A URL or a folder that cannot be read and a missing driver are problems."""
    scheme = url.partition(":")[0]
    backend, extra = BACKENDS.get(scheme, ("", ""))
    if not backend:
        return Examination(
            shown(url),
            shown(url).partition(":")[0],
            problem="It is no store; use sqlite:///file, postgresql://… and the like.",
        )
    try:
        examination: Examination = import_module(EXAMINERS[backend]).examine(url)
    except ModuleNotFoundError as missing:
        if not extra:
            raise
        problem = f"{missing.name} is not installed; run: pip install 'umavez[{extra}]'."
        return Examination(shown(url), scheme, problem=problem)
    except ConfigurationError as error:
        return Examination(shown(url), scheme, problem=scrubbed(str(error), url))
    except OSError as error:  # a folder that may not be looked into says nothing about the other stores
        return Examination(shown(url), scheme, problem=scrubbed(f"{error.filename}: {error.strerror}.", url))
    return examination


def _named(store: list[str] | None) -> list[str]:
    # Not typer's envvar: it would split a path with a space into two stores.
    from_environment = named_in_environment()
    return store or ([from_environment] if from_environment else [])


def _exit_code(named: list[Examination], found: list[Examination], *, strict: bool) -> int:
    answering = [examination for examination in (*named, *found) if examination.problem is None]
    if not answering or any(examination.problem is not None for examination in named):
        return 2
    return 1 if strict and any(examination.level.counts for examination in named or found) else 0
