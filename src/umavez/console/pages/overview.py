"""The overview: what stands in the store, in a few numbers and drawings, and what each system says."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from starlette.responses import Response

from umavez.console.books import Books, TooSlow
from umavez.console.charts.pages import Hour, hour_of
from umavez.console.charts.standing import Standing, standing_of
from umavez.console.pages.numbers import findings_of, numbers_of
from umavez.console.panels import LOG, safe_page
from umavez.console.search import quoted
from umavez.console.standing import column_of, policy_of
from umavez.console.visit import Visit
from umavez.core.record import Instant, Record
from umavez.errors import Crowded, StoreError

NEWEST = 200
MOST_OPERATIONS = 200


class Operation(NamedTuple):
    """A line of the overview."""

    name: str
    search: str
    policy: str
    counts: Counter[str]
    newest: Instant | None


async def overview(visit: Visit) -> Response:
    """What stands in the store, in a few numbers, and what each system says."""
    books = visit.desk.books
    newest = await books.kept("newest", lambda: books.newest(NEWEST))
    now = await books.look(books.now)
    tiles, late = await _tiles(visit)
    hour, standing = await _charts(visit)
    return visit.page(
        "overview.html",
        numbers=await numbers_of(visit, now),
        findings=await findings_of(visit),
        tiles=tiles,
        late=late,
        operations=_operations(books, newest, now, [] if hour is None else list(hour.paces)),
        looked_at=len(newest),
        now=now,
        hour=hour,
        standing=standing,
    )


async def _charts(visit: Visit) -> tuple[Hour | None, Standing | None]:
    """The drawings; without them where they take too long, since the numbers matter more."""
    try:
        return await hour_of(visit), await standing_of(visit)
    except (TooSlow, Crowded, StoreError):
        return None, None


async def _tiles(visit: Visit) -> tuple[list[Any], list[str]]:
    """What the panels show, and the names of those that could not."""
    tiles, late = [], []
    books = visit.desk.books
    for panel in visit.desk.panels:
        try:
            tile = await books.kept(f"tile {panel.name}", panel.tile)
        except Exception as error:  # noqa: BLE001  # a system's trouble is its own, and is said beside the others
            LOG.warning("The panel %s failed (%s)", panel.name, type(error).__name__)
            late.append(panel.name)
            continue
        if tile is not None:
            tiles.append(tile._replace(page=safe_page(tile.page)))
    return tiles, late


def _operations(books: Books, newest: list[Record], now: Instant, counted: list[str]) -> list[Operation]:
    counts: dict[str, Counter[str]] = {name: Counter() for name in (*books.once.plans.declarations, *counted)}
    seen: dict[str, Instant] = {}
    for record in newest:
        name = record.key.operation
        counts.setdefault(name, Counter())[column_of(record, now)] += 1
        seen.setdefault(name, record.created_at)
    return [
        Operation(name, f'op:"{quoted(name)}"', policy_of(books, name), counts[name], seen.get(name))
        for name in sorted(counts)[:MOST_OPERATIONS]
    ]
