"""Panels: what a system shows in the console. Found by the entry points `umavez.console_panels`, or handed over.

An entry names a function that gets the store's URL and gives panels. Each method is called in a thread, within the
console's time; a panel that fails or is late is left out of the page, and said to be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from umavez.core.record import Record

GROUP = "umavez.console_panels"
LOG = logging.getLogger("umavez.console")


class Tile(NamedTuple):
    """A square of the overview: lines of a name and a number, and whether somebody should look.

    `portuguese` has what the lines say in English, for readers of Portuguese.
    """

    title: str
    lines: tuple[tuple[str, str], ...]
    page: str | None = None
    alarm: bool = False
    portuguese: Mapping[str, str] = {}

    def said(self, lang: str, text: str) -> str:
        """A text of a line in the reader's language; as it is, where it has no other."""
        return self.portuguese.get(text, text) if lang == "pt" else text


class Link(NamedTuple):
    """A way to a page of the system; `page` begins with a slash."""

    text: str
    page: str


class Panel(Protocol):
    """What a system adds. `page` is its own first page, for the navigation; `close()`, if there is one, ends it."""

    name: str
    page: str | None

    def tile(self) -> Tile | None:
        """What the overview shows of it."""
        ...

    def find(self, word: str) -> Sequence[Link]:
        """What it knows under a bare word of the search; bounded, and by an index."""
        ...

    def links(self, record: Record) -> Sequence[Link]:
        """Where else something about `record` stands."""
        ...


def installed(url: str | None) -> list[Panel]:
    """The panels of every package that is installed and whose tables are at `url`."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # as slow to import as half of the engine

    found: list[Panel] = []
    if url is None:
        return found
    for entry in entry_points(group=GROUP):
        try:
            make: Callable[[str], Sequence[Panel]] = entry.load()
            found += make(url)
        except Exception as error:  # noqa: BLE001  # one package's trouble must not close the console
            LOG.warning("The panels of %s cannot be shown (%s)", entry.name, type(error).__name__)
    return found


def safe_page(page: str | None) -> str | None:
    """`page`, if it is one of this server: a path, and nothing that leads elsewhere or runs."""
    if page is None or not page.startswith("/") or page.startswith(("//", "/\\")):
        return None
    return page
