"""Commands and tables that stand above this layer: the systems', and those of anybody else who is installed.

An entry of the group `umavez.commands` names a function that puts commands on the app. Where the module beside it has
`migrate(url)`, that makes its tables and says so in a sentence; `umavez migrate` calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

GROUP = "umavez.commands"
LEFT_OUT: dict[str, str] = {}
"""By entry, what those need whose commands are not offered."""


def commands() -> Iterator[Callable[[Any], None]]:
    """What puts the others' commands on an app."""
    for entry in entry_points(group=GROUP):
        try:
            yield entry.load()
        except ModuleNotFoundError as missing:
            # Installed without the extra that brings its dependencies: then the command is not offered.
            if missing.name is None or missing.name.partition(".")[0] in ("umavez", "umavez_systems"):
                raise
            LEFT_OUT[entry.name] = str(missing)


def migrations() -> list[Callable[[str], str]]:
    """What makes the others' tables."""
    found = (getattr(sys.modules[command.__module__], "migrate", None) for command in commands())
    return [migrate for migrate in found if migrate is not None]
