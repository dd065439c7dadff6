"""The console: see every key, decide the doubtful ones. An ASGI app; needs umavez[console].

    app.mount("/console", umavez.console(once, authorize=who_is_it))

Importing this loads neither starlette nor jinja2.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from umavez._async.once import AsyncOnce
from umavez._sync.once import Once
from umavez.console.panels import Link, Panel, Tile
from umavez.console.people import EVERYTHING, Authorize, Who, loopback, users
from umavez.console.words import CHOICE, LANGUAGES, language_of
from umavez.errors import ConfigurationError

if TYPE_CHECKING:
    from umavez.console.app import Console

__all__ = [
    "CHOICE",
    "EVERYTHING",
    "LANGUAGES",
    "Authorize",
    "Link",
    "Panel",
    "Tile",
    "Who",
    "console",
    "language_of",
    "loopback",
    "users",
]


def console(
    once: Once | AsyncOnce,
    *,
    authorize: Authorize | None = None,
    panels: Sequence[Panel] | None = None,
    url: str | None = None,
    as_written: bool = False,
    around: Sequence[Link] | None = None,
) -> Console:
    """The console of the store behind `once`, as an ASGI app to mount or to serve alone.

    `authorize(request)` says who is asking, as a `Who`, or None for somebody who may not come in; it may be awaited.
    Without it the people of UMAVEZ_CONSOLE_USERS sign in, and where there are none the console is closed: a process
    behind a proxy cannot tell who is on the same machine. `authorize=loopback` opens it to this machine, as `local`.
    `url` is where the store is, if `once` was not made from it. `panels` are those of the entry points
    `umavez.console_panels` unless given. `as_written` keeps what an operator types as the stored text itself, for an
    engine that knows no operation's codec. `around` are the other pages of the application, for the navigation; those
    of the panels unless given.

    Raises ConfigurationError where a part is not installed, or where `once` is awaited and no URL leads to its store.
    """
    try:
        made: Any = import_module("umavez.console.app").Console
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("umavez"):
            raise
        raise ConfigurationError(
            f"The console needs {missing.name}, which is not installed; run: pip install 'umavez[console]'."
        ) from missing
    app: Console = made(once, authorize=authorize, panels=panels, url=url, as_written=as_written, around=around)
    return app
