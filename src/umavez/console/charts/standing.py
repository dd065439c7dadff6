"""Standing: how many outcomes were unknown, how many messages waited, and for how long the oldest, over time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from starlette.responses import Response

from umavez.console.books import Books
from umavez.console.charts.drawing import Said
from umavez.console.charts.levels import Level, Series, level
from umavez.console.charts.reading import FRESH, HOURS, MINUTES, tallied
from umavez.console.looks import human
from umavez.console.visit import Visit
from umavez.console.words import said
from umavez.core.record import Instant, Millis
from umavez.core.telling.gauges import GAUGES, NAMES, Gauge, highest
from umavez.core.telling.minutes import HOUR, MINUTE

TITLES = {
    "unknown": ("Outcomes that are unknown", "The oldest unknown outcome", "unknown"),
    "lapsed": ("Holders that are gone", "The oldest whose holder is gone", "lapsed"),
    "outbox": ("Messages that are due", "For how long the oldest message is due", "pending"),
    "dead": ("Dead messages", "", "failed"),
}
"""For each gauge what its two charts are called, how many and how old, and their colour."""


class Standing(NamedTuple):
    """Charts of whatever stood above nothing, and the names of what was looked at and was not there."""

    levels: list[Level]
    calm: list[str]


async def standing_of(visit: Visit, span: Millis = MINUTE) -> Standing:
    """What stood in the last hour, or week by hours, drawn once for all who read this language."""
    books, lang = visit.desk.books, visit.lang
    return await books.kept(f"standing {span} {lang}", lambda: _standing(books, lang, span), FRESH)


def _standing(books: Books, lang: str, span: Millis) -> Standing:
    many = MINUTES if span == MINUTE else HOURS
    found, now = highest(tallied(books, span, many, GAUGES)), books.now()
    levels: list[Level] = []
    calm = []
    for name in NAMES:
        row = _row(found, name, now, span, many)
        if not any(row):
            continue
        drawn = _drawn(name, row, now, span, lang)
        levels += drawn
        calm += [] if drawn else [TITLES[name][0]]
    return Standing(levels, calm)


def _row(
    found: dict[tuple[str, Instant], Gauge], name: str, now: Instant, span: Millis, many: int
) -> list[Gauge | None]:
    first = now // span - many + 1
    return [found.get((name, (first + place) * span)) for place in range(many)]


def _drawn(name: str, row: list[Gauge | None], now: Instant, span: Millis, lang: str) -> list[Level]:
    """How many, and how old; neither where there was nothing, no ages where there were none."""
    say: Said = partial(said, lang)
    how_many, how_old, tone = TITLES[name]
    asked: tuple[tuple[str, Callable[[Gauge], float], Callable[[float], str]], ...] = (
        (how_many, lambda gauge: gauge.many, lambda value: f"{value:.0f}"),
        (how_old, lambda gauge: gauge.seconds, lambda value: human(lang, int(min(value, 1e12) * 1000))),
    )
    drawn = []
    for title, number, words in asked:
        values = [None if gauge is None else float(number(gauge)) for gauge in row]
        if title and any(values):
            drawn.append(level(say(title), [Series(title, tone, values)], now, span, words))
    return drawn


async def over_time(visit: Visit) -> Response:
    """The page: the last hour, and the last week."""
    spans = [
        (visit.t("The last hour"), await standing_of(visit)),
        (visit.t("The last week"), await standing_of(visit, HOUR)),
    ]
    return visit.page("over_time.html", spans=spans)
