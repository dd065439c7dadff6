"""Pages with charts: what the overview shows of the last hour, and the page of one operation."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import NamedTuple

from markupsafe import Markup
from starlette.responses import Response

from umavez.console.books import Books
from umavez.console.charts.drawing import Chart, Said, chart, counted, height, sparkline
from umavez.console.search import quoted
from umavez.console.standing import policy_of
from umavez.console.visit import Refused, Visit
from umavez.console.words import said
from umavez.core.record import Instant, Millis
from umavez.core.telling.minutes import HOUR, MINUTE, Tally, quantile
from umavez.stores import Tallies

MINUTES, HOURS = 60, 168
"""What one chart shows: an hour in minutes, a week in hours."""
FRESH = 10.0
"""Seconds that a chart may be old: those who count write that often."""
LONGEST = 255
MOST_DRAWN = 100
"""Operations that the overview draws, those of which most was counted."""
_TIMED = frozenset({"succeeded", "failed", "refused"})
"""The kinds of attempts that ran, and so took time."""


class Pace(NamedTuple):
    """An operation in the last hour: how many calls, how many of them replays, how long most took."""

    calls: int
    replayed: str
    slow: str
    drawing: Markup


class Hour(NamedTuple):
    """What the overview shows."""

    chart: Chart
    paces: dict[str, Pace]


async def hour_of(visit: Visit) -> Hour | None:
    """The last hour of all operations, drawn once for all who read this language; None where nothing was counted."""
    books, lang = visit.desk.books, visit.lang
    return await books.kept(f"hour {lang}", lambda: _hour(books, partial(said, lang)), FRESH)


def _hour(books: Books, say: Said) -> Hour | None:
    found, now = tallied(books, MINUTE, MINUTES), books.now()
    if not found:
        return None
    each: dict[str, list[Tally]] = {}
    for tally in found:
        each.setdefault(tally.operation, []).append(tally)
    drawn = chart(found, now, MINUTE, MINUTES, say("Calls per minute, all operations"), say)
    busiest = sorted(each, key=lambda name: -len(each[name]))[:MOST_DRAWN]
    return Hour(drawn, {name: _pace(each[name], now, say) for name in busiest})


def tallied(books: Books, span: Millis, many: int, operation: str | None = None) -> list[Tally]:
    """What was counted in the last `many` spans; nothing where this store keeps no minutes."""
    store = books.engine.store
    return store.tallied(span, span * many, operation) if isinstance(store, Tallies) else []


def _pace(tallies: list[Tally], now: Instant, say: Said) -> Pace:
    total: Counter[str] = sum(counted(tallies, now, MINUTE, MINUTES), Counter())
    calls = height(total)
    replayed = f"{total['replayed'] / calls:.0%}" if calls else "—"
    drawing = sparkline(tallies, now, MINUTE, MINUTES, say)
    return Pace(calls, replayed, _seconds(quantile(_ran(tallies), 0.95)), drawing)


def _ran(tallies: list[Tally]) -> list[Tally]:
    return [tally for tally in tallies if tally.kind in _TIMED]


def _seconds(found: float | None) -> str:
    if found is None:
        return "—"
    return f"{found * 1000:.0f} ms" if found < 1 else f"{found:.1f} s"


async def operation(visit: Visit) -> Response:
    """One operation: its last hour and its last week."""
    name = visit.asked("name")
    if not name or len(name) > LONGEST:
        raise Refused("Say which operation: ?name=charge.", 400)
    books = visit.desk.books
    now = await books.look(books.now)
    minutes = await books.look(lambda: tallied(books, MINUTE, MINUTES, name))
    hours = await books.look(lambda: tallied(books, HOUR, HOURS, name))
    titles = (visit.t("Calls per minute"), visit.t("Calls per hour"))
    charts = [
        (title, chart(found, now, span, many, f"{title}: {name}", visit.t))
        for title, found, span, many in zip(titles, (minutes, hours), (MINUTE, HOUR), (MINUTES, HOURS), strict=True)
        if found
    ]
    lasted = [
        (words, _seconds(quantile(_ran(found), share)))
        for words, found, share in (
            (visit.t("Half of the attempts of the last hour took up to"), minutes, 0.5),
            (visit.t("95 % of the attempts of the last hour took up to"), minutes, 0.95),
            (visit.t("95 % of the attempts of the last week took up to"), hours, 0.95),
        )
        if _ran(found)
    ]
    return visit.page(
        "operation.html",
        operation=name,
        charts=charts,
        lasted=lasted,
        policy=policy_of(books, name),
        search=f'op:"{quoted(name)}"',
    )
