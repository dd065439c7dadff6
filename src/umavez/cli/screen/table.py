"""Tables and texts for a terminal. Names and messages come from strangers, so nothing of them reaches it raw."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Cell = str | Text


def columns(*names: str) -> Table:
    """An empty list with these columns: `NAME` folds, `NAME|` stays on one line, `NAME>` does so to the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for name in names:
        if name.endswith(">"):
            table.add_column(name[:-1], justify="right", no_wrap=True)
        elif name.endswith("|"):
            table.add_column(name[:-1], no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    return table


def fields(rows: Iterable[tuple[str, Cell | None]]) -> Padding:
    """What there is to say about one thing, a line each; a field without a value is left out."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value is not None:
            table.add_row(name, value)
    return indent(table, above=1)


def indent(what: Any, above: int = 0) -> Padding:
    """`what`, set in below its title."""
    return Padding(what, (above, 0, 0, 2))


def heading(text: str) -> Text:
    """The title of a part."""
    return Text(f"\n{text}", style="bold")


def print_list(table: Table, one: str, many: str, *, following: str | None = None, room: int = 0) -> None:
    """A list and the line below it: how many there are, and how the list goes on; or that nothing matches.

    `room` is the width that it takes at least: what the terminal wraps can still be copied, what is cut cannot.
    """
    console = Console()
    count = table.row_count
    if not count:
        console.print(f"No {many} match.")
        return
    Console(width=max(console.width, room)).print(table)
    console.print(Text(f"{count:,} {one if count == 1 else many}", style="dim"))
    if following:
        # Whole, however narrow the terminal is: it is there to be copied.
        console.print(Text(f"there are more: --after {following}", style="dim"), soft_wrap=True)


def parsed(text: str | None) -> Any:
    """The JSON value of `text`; a codec that encrypts stores other text, which is given as it is."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def indented(text: str) -> str:
    """JSON text over several lines; any other text as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def plain(text: str, keep: str = "") -> str:
    """`text` with whatever could steer a terminal or turn its direction shown as an escape."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() or mark in keep else ascii(mark)[1:-1] for mark in text)
