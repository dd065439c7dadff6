"""The command line, put together. A new command group is a module with `add(app)` and a line in GROUPS."""

from __future__ import annotations

import errno
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from umavez.cli import console, extensions, migrate, observe, reconcile, relay, sweep
from umavez.cli.doctor import command as doctor
from umavez.cli.leases import command as leases
from umavez.cli.records import change as records_change
from umavez.cli.records import command as records
from umavez.cli.sequences import command as sequences
from umavez.cli.tokens import command as tokens
from umavez.errors import ConfigurationError, InvalidKey, UmavezError

GROUPS = (
    doctor,
    migrate,
    records,
    records_change,
    tokens,
    leases,
    sequences,
    relay,
    reconcile,
    sweep,
    console,
    observe,
)
"""Modules whose `add` puts commands on the app, in the order of the help text."""


class Commands(TyperGroup):
    """A group that says errors in one sentence: exit code 2 for wrong input, 1 for the rest.

    umavez's own, and what the system says about files and ports. Anything else is a fault of ours, with its traceback.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names. For none, what is said tells of those that are not offered here."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as unknown:
            if isinstance(said := getattr(unknown, "message", None), str):
                unknown.message = " ".join([said, *extensions.LEFT_OUT.values()])  # type: ignore[attr-defined]  # click's
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command that `ctx` names."""
        try:
            return super().invoke(ctx)
        except UmavezError as error:
            raise _told(str(error), 2 if isinstance(error, ConfigurationError | InvalidKey) else 1) from None
        except UnicodeError:
            raise _told("An argument or a file is no text in UTF-8; write it so, and try again.", 2) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read along has seen enough; click ends quietly
                raise
            where = f"{error.filename}: " if error.filename is not None else ""
            raise _told(f"{where}{error.strerror or error}.", 1) from None


def _told(sentence: str, code: int) -> typer.Exit:
    print(f"umavez: {sentence}", file=sys.stderr)
    return typer.Exit(code)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    # A rich traceback may print local variables, and those hold URLs with passwords.
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        print(f"umavez {version('umavez')}")
    except PackageNotFoundError:
        print("umavez (run from source, not installed)")
    raise typer.Exit


@app.callback()
def umavez(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave."),
    ] = False,
) -> None:
    """Look after the records of operations that must happen once.

    \b
    Name the store once for all commands:
      export UMAVEZ_STORE=postgresql://user@host/database

    \b
    Examples:
      umavez doctor
      umavez records list --status unknown
    """


for group in GROUPS:
    group.add(app)
for add in extensions.commands():
    add(app)
