"""Pages with charts: what the overview shows of the last hour, and the page of one operation."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import NamedTuple

from markupsafe import Markup
from starlette.responses import Response

from umavez.console.books import Books
from umavez.console.charts.drawing import Chart, Said, chart, counted, height, sparkline
from umavez.console.charts.levels import Level, Series, level
from umavez.console.charts.reading import FRESH, HOURS, MINUTES, all_tallied, tallied
from umavez.console.search import quoted
from umavez.console.standing import policy_of
from umavez.console.visit import Refused, Visit
from umavez.console.words import said
from umavez.core.record import Instant, Millis
from umavez.core.telling.minutes import HOUR, MINUTE, Tally, quantile

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
    """What the overview shows. `many` are the minutes of it: fewer than an hour has where there was too much."""

    chart: Chart
    paces: dict[str, Pace]
    many: int


async def hour_of(visit: Visit) -> Hour | None:
    """The last hour of all operations, drawn once for all who read this language; None where nothing was counted."""
    books, lang = visit.desk.books, visit.lang
    return await books.kept(f"hour {lang}", lambda: _hour(books, partial(said, lang)), FRESH)


def _hour(books: Books, say: Said) -> Hour | None:
    (found, many), now = all_tallied(books, MINUTE, MINUTES), books.now()
    if not found:
        return None
    each: dict[str, list[Tally]] = {}
    for tally in found:
        each.setdefault(tally.operation, []).append(tally)
    drawn = chart(found, now, MINUTE, many, say("Calls per minute, all operations"), say)
    busiest = sorted(each, key=lambda name: -sum(tally.count for tally in each[name]))[:MOST_DRAWN]
    return Hour(drawn, {name: _pace(each[name], now, say) for name in busiest}, many)


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
    minutes, hours = await books.look(
        lambda: (tallied(books, MINUTE, MINUTES, name), tallied(books, HOUR, HOURS, name))
    )
    spans = ((MINUTE, MINUTES, minutes), (HOUR, HOURS, hours))
    titles = (visit.t("Calls per minute"), visit.t("Calls per hour"))
    charts = [
        (title, chart(found, now, span, many, f"{title}: {name}", visit.t))
        for title, (span, many, found) in zip(titles, spans, strict=True)
        if found
    ]
    return visit.page(
        "operation.html",
        operation=name,
        charts=charts,
        lasted=_lasted(visit, minutes, hours),
        levels=[durations(found, now, span, many, visit.t) for span, many, found in spans if _ran(found)],
        policy=policy_of(books, name),
        search=f'op:"{quoted(name)}"',
    )


def _lasted(visit: Visit, minutes: list[Tally], hours: list[Tally]) -> list[tuple[str, str]]:
    """How long attempts took, in words."""
    return [
        (words, _seconds(quantile(_ran(found), share)))
        for words, found, share in (
            (visit.t("Half of the attempts of the last hour took up to"), minutes, 0.5),
            (visit.t("95 % of the attempts of the last hour took up to"), minutes, 0.95),
            (visit.t("95 % of the attempts of the last week took up to"), hours, 0.95),
        )
        if _ran(found)
    ]


def durations(tallies: list[Tally], now: Instant, span: Millis, many: int, say: Said) -> Level:
    """What 95 % and half of the attempts took at most, in each of the last `many` spans."""
    each: dict[Instant, list[Tally]] = {}
    for tally in _ran(tallies):
        each.setdefault(tally.at // span, []).append(tally)
    first = now // span - many + 1
    slow, half = ([quantile(each.get(first + place, []), share) for place in range(many)] for share in (0.95, 0.5))
    series = [Series(say("95 % took up to"), "replayed", slow), Series(say("half took up to"), "success", half)]
    title = say("How long attempts took, by the minute" if span == MINUTE else "How long attempts took, by the hour")
    return level(title, series, now, span, _seconds)
