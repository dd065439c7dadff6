"""Paging through records: where a page ends, and records that a store cannot tell apart by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, NamedTuple

import typer

from umavez._sync.paging import pages
from umavez.core.record import Instant, Position, Query, Record
from umavez.stores import Store

PAGE = 500
"""How many records are looked at in one go where only some of them are wanted."""

_WRITTEN = re.compile(r"(\d{1,16})-([0-9a-f]{64})")


def position(text: str | Position) -> Position:
    """The position that `cursor` wrote. Raises BadParameter for anything else."""
    if isinstance(text, Position):
        return text
    written = _WRITTEN.fullmatch(text.strip())
    if written is None:
        raise typer.BadParameter("it is not what `next` of a list says; copy it from there.")
    return Position(int(written[1]), bytes.fromhex(written[2]))


def cursor(record: Record) -> str:
    """Where a list goes on that ended with `record`."""
    return f"{record.created_at}-{record.key.digest.hex()}"


Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]
After = Annotated[
    Position | None,
    typer.Option(metavar="NEXT", parser=position, help="Go on where a list ended: what it said as next."),
]
NewestFirst = Annotated[
    bool, typer.Option("--newest-first/--oldest-first", help="Whether the newest comes first, or the oldest.")
]


class Selection(NamedTuple):
    """What was found, in order, at `now` by the store's clock; `next` says where to go on if a limit cut it."""

    records: list[Record]
    now: Instant
    next: str | None


def select(store: Store, query: Query, wanted: Callable[[Record, Instant], bool] | None = None) -> Selection:
    """Up to `query.limit` records that match `query` and are `wanted`."""
    chosen: list[Record] = []
    now = 0
    # One more than is shown tells whether there are more.
    for page in pages(store, replace(query, limit=query.limit + 1 if wanted is None else max(PAGE, query.limit + 1))):
        now = now or store.read(page[0].key).now
        chosen += page if wanted is None else [record for record in page if wanted(record, now)]
        if len(chosen) > query.limit:
            shown = chosen[: query.limit]
            return Selection(shown, now, cursor(shown[-1]))
    return Selection(chosen, now, None)
