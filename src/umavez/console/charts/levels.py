"""Levels: how high something stood, as bars over time; what was not looked at has no bar, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from umavez.console.charts.drawing import HIGH, box, svg, when
from umavez.core.record import Instant, Millis

Values = Sequence[float | None]
"""One for each span, the earliest first; None where nobody looked."""


class Series(NamedTuple):
    """What one colour of a chart shows."""

    name: str
    tone: str
    values: Values


class Level(NamedTuple):
    """A drawing with what is written around it. `lines` are the numbers, the newest first."""

    title: str
    drawing: Markup
    most: str
    last: str
    begins: str
    ends: str
    legend: list[tuple[str, str]]
    lines: list[tuple[str, list[str]]]


def level(title: str, series: Sequence[Series], now: Instant, span: Millis, words: Callable[[float], str]) -> Level:
    """How high each of `series` stood in the last spans. They share a scale, and each is drawn over those before it.

    `words` says a number as people read it. The first of the series is the highest, and says the most and the last.
    """
    many = max(len(one.values) for one in series)
    whens = [when((now // span - many + 1 + place) * span, span) for place in range(many)]
    top = max((value for one in series for value in one.values if value is not None), default=0.0)
    rows = list(zip(*(one.values for one in series), strict=True))
    seen = [place for place, row in enumerate(rows) if any(value is not None for value in row)]
    lines = [(whens[place], [_told(value, words) for value in rows[place]]) for place in reversed(seen)]
    bars = (_bar(place, series, rows[place], top, f"{when}: {', '.join(told)}") for place, (when, told) in zip(
        reversed(seen), lines, strict=True))  # fmt: skip
    last = lines[0][1][0] if lines else "—"
    summary = f"<title>{escape(title)}</title><desc>{escape(words(top))}</desc>"
    legend = [(one.name, one.tone) for one in series]
    return Level(title, svg("chart low", many, summary, bars), words(top), last, whens[0], whens[-1], legend, lines)


def _told(value: float | None, words: Callable[[float], str]) -> str:
    return "—" if value is None else words(value)


def _bar(place: int, series: Sequence[Series], row: Sequence[float | None], top: float, said: str) -> str:
    parts = [f"<title>{escape(said)}</title>"]
    for one, value in zip(series, row, strict=True):
        if value:
            tall = max(value / top * HIGH, 3.0)  # what is little beside the highest is still seen
            parts.append(box(one.tone, place, HIGH - tall, tall))
    return f"<g>{''.join(parts)}</g>"
