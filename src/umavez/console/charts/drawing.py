"""Drawing: bars over time as SVG, made here: no script, no style of its own, every bar with its numbers in words.

The drawing is stretched to the width of the screen, so that no text stands in it: its scale is written beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from markupsafe import Markup, escape

from umavez.core.record import Instant, Millis
from umavez.core.telling.minutes import MINUTE, Tally

HIGH, STRIP, WIDE = 100, 8, 10
"""Units of a drawing: its height, the height of the strip below the bars, and the place of one bar."""


class Band(NamedTuple):
    """A part of a bar: its name, its colour, and the kinds of events that it counts."""

    name: str
    tone: str
    kinds: frozenset[str]


ENDINGS = (
    Band("succeeded", "success", frozenset({"succeeded", "adopted"})),
    Band("replayed", "replayed", frozenset({"replayed"})),
    Band("failed", "failed", frozenset({"failed", "refused", "exhausted"})),
    Band("unknown", "unknown", frozenset({"unknown"})),
)
"""How calls end: the bars are made of these, the first at the bottom."""
TAKEN_OVER = Band("taken over", "lapsed", frozenset({"taken_over"}))
"""Not an end: what is taken over ends later, and is counted then. It has a strip of its own."""
BANDS = (*ENDINGS, TAKEN_OVER)
_BAND_OF = {kind: band.name for band in BANDS for kind in band.kinds}

Said = Callable[..., str]
"""A sentence of ours in the reader's language."""


class Line(NamedTuple):
    """One minute or hour in numbers: when it began, and how many of each band."""

    at: str
    counts: tuple[int, ...]


class Chart(NamedTuple):
    """A drawing with what is written around it."""

    drawing: Markup
    legend: list[tuple[str, str, int]]
    most: int
    begins: str
    ends: str
    lines: list[Line]


def chart(tallies: Iterable[Tally], now: Instant, span: Millis, many: int, name: str, said: Said) -> Chart:
    """How the calls of the last `many` minutes or hours ended. `name` says whose they are, to who hears the page."""
    slots = counted(tallies, now, span, many)
    first = (now // span - many + 1) * span
    totals = Counter[str]()
    for slot in slots:
        totals.update(slot)
    most = max((height(slot) for slot in slots), default=0)
    whens = [when(first + place * span, span) for place in range(many)]
    words = ", ".join(f"{said(band.name)} {totals[band.name]}" for band in BANDS)
    bars = (_bar(place, slot, most, f"{whens[place]}: {_told(slot, said)}") for place, slot in enumerate(slots) if slot)
    drawing = svg("chart", many, f"<title>{escape(name)}</title><desc>{escape(words)}</desc>", bars)
    lines = [Line(whens[place], tuple(slot[band.name] for band in BANDS)) for place, slot in enumerate(slots) if slot]
    legend = [(band.name, band.tone, totals[band.name]) for band in BANDS]
    return Chart(drawing, legend, most, whens[0], whens[-1], lines[::-1])


def sparkline(tallies: Iterable[Tally], now: Instant, span: Millis, many: int, said: Said) -> Markup:
    """The same in a line of a table: calls, and on top those that did not end well."""
    slots = counted(tallies, now, span, many)
    most = max((height(slot) for slot in slots), default=0)
    strokes: dict[str, list[str]] = {}
    for place, slot in enumerate(slots):
        for tone, top, tall in _parts(slot, most):
            strokes.setdefault(tone, []).append(f"M{place * WIDE + 1} {top:.0f}h{WIDE - 2}v{tall:.0f}h-{WIDE - 2}z")
    # One path for each colour: an overview has thousands of these boxes, and phones read it.
    paths = (f'<path class="is {tone}" d="{"".join(boxes)}"/>' for tone, boxes in strokes.items())
    total = sum(slots, Counter[str]())
    return svg("spark", many, f"<title>{escape(_told(total, said))}</title>", paths)


def counted(tallies: Iterable[Tally], now: Instant, span: Millis, many: int) -> Sequence[Counter[str]]:
    """How many of each band there were, in each of the last `many` spans; what is outside of them is left out."""
    last = now // span
    slots: list[Counter[str]] = [Counter() for _ in range(many)]
    for tally in tallies:
        place = many - 1 - (last - tally.at // span)
        band = _BAND_OF.get(tally.kind)
        if band is not None and 0 <= place < many:
            slots[place][band] += max(tally.count, 0)
    return slots


def height(slot: Counter[str]) -> int:
    """How many calls ended."""
    return sum(slot[band.name] for band in ENDINGS)


def when(at: Instant, span: Millis) -> str:
    """The start of a minute, or of an hour with its day; in UTC."""
    moment = datetime.fromtimestamp(at // 1000, UTC)
    return f"{moment:%H:%M}" if span <= MINUTE else f"{moment:%m-%d %H:%M}"


def _told(slot: Counter[str], said: Said) -> str:
    return ", ".join(f"{said(band.name)} {slot[band.name]}" for band in BANDS if slot[band.name]) or "0"


def _bar(place: int, slot: Counter[str], most: int, words: str) -> str:
    # Not by Markup, which costs ten times as much, and only words may be strange.
    boxes = (box(tone, place, top, tall) for tone, top, tall in _parts(slot, most))
    return f"<g><title>{escape(words)}</title>{''.join(boxes)}</g>"


def _parts(slot: Counter[str], most: int) -> Iterator[tuple[str, float, float]]:
    """What a bar is made of, from its foot up: the colour, how far below the upper edge, how tall."""
    below = 0.0
    for band in ENDINGS:
        if slot[band.name]:
            # One among thousands is still seen: whoever looks for what is rare must find it.
            tall = max(slot[band.name] / most * HIGH, 3.0)
            below = min(below + tall, float(HIGH))
            yield band.tone, HIGH - below, tall
    if slot[TAKEN_OVER.name]:
        yield TAKEN_OVER.tone, HIGH + 2, STRIP - 2


def box(tone: str, place: int, top: float, tall: float) -> str:
    """One rectangle, `top` units below the upper edge."""
    return f'<rect class="is {tone}" x="{place * WIDE + 1}" y="{top:.1f}" width="{WIDE - 2}" height="{tall:.1f}"/>'


def svg(kind: str, many: int, words: str, bars: Iterable[str]) -> Markup:
    """A drawing with room for `many` bars; `words` and `bars` are escaped already."""
    box = f"0 0 {many * WIDE} {HIGH + STRIP}"
    return Markup(  # noqa: S704  # numbers and names of ours; every word is escaped
        f'<svg class="{kind}" viewBox="{box}" preserveAspectRatio="none" role="img">{words}{"".join(bars)}</svg>'
    )
