"""The `umavez` command. Importing this package loads neither typer nor rich nor any driver."""

from __future__ import annotations

import io
import sys
from importlib import import_module

_NEEDED = frozenset(("typer", "click", "rich", "shellingham"))


def main() -> None:
    """Run the command line. Without typer and rich: one sentence on stderr and exit code 2."""
    try:
        app = import_module("umavez.cli.app").app
    except KeyboardInterrupt:
        sys.exit(130)  # as click ends a command that has begun
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in _NEEDED:
            raise
        print(
            f"The umavez command needs {name}, which is not installed; run: pip install 'umavez[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without UTF-8 gets marks in place of letters, not half a table and a traceback.
        sys.stdout.reconfigure(errors="replace")
    app(prog_name="umavez")
