"""Charts are drawings with their numbers in words: nothing is lost in them, and nothing runs (X.04)."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from tests.console.test_escaping import EVIL
from umavez.console.charts.drawing import HIGH, STRIP, WIDE, chart, counted, sparkline
from umavez.core.telling.minutes import HOUR, MINUTE, Tally

NOW = 1_700_000_000_000
FIRST = NOW // MINUTE * MINUTE
SVG = "{http://www.w3.org/2000/svg}"


def said(text: str, **values: object) -> str:
    return text.format(**values)


def tally(back: int, kind: str, count: int, operation: str = "charge") -> Tally:
    return Tally(FIRST - back * MINUTE, operation, kind, count)


def drawn(markup: str) -> ET.Element:
    """The drawing as a browser reads it: well formed, or it fails."""
    named = str(markup).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return ET.fromstring(named)  # noqa: S314  # it is ours


def test_every_minute_has_its_numbers_and_what_is_outside_is_left_out() -> None:
    tallies = [
        tally(0, "succeeded", 5),
        tally(0, "adopted", 1),
        tally(59, "unknown", 2),
        tally(60, "failed", 9),
        tally(-1, "failed", 9),
        tally(3, "waited", 7),
        tally(3, "replayed", 4, "ship"),
    ]

    slots = counted(tallies, NOW, MINUTE, 60)

    assert [dict(slots[place]) for place in (59, 56, 0)] == [{"succeeded": 6}, {"replayed": 4}, {"unknown": 2}]
    assert sum(sum(slot.values()) for slot in slots) == 12


def test_a_chart_says_in_words_what_it_draws() -> None:
    tallies = [tally(2, "succeeded", 990), tally(2, "unknown", 1), tally(2, "taken_over", 3), tally(7, "failed", 10)]

    found = chart(tallies, NOW, MINUTE, 60, "Calls per minute", said)
    picture = drawn(found.drawing)

    assert picture.attrib["role"] == "img"
    assert picture[0].text == "Calls per minute"
    assert picture[1].text == "succeeded 990, replayed 0, failed 10, unknown 1, taken over 3"
    titles = [title.text or "" for title in picture.iter(f"{SVG}title")][1:]
    assert [title.partition(": ")[2] for title in titles] == ["failed 10", "succeeded 990, unknown 1, taken over 3"]
    assert found.most == 991, "what is taken over ends later, and is counted then"
    assert [line.counts for line in found.lines] == [(990, 0, 0, 1, 3), (0, 0, 10, 0, 0)], "the newest first"
    assert {name: total for name, _, total in found.legend}["unknown"] == 1


def test_bars_stay_in_the_picture_and_one_among_thousands_is_seen() -> None:
    tallies = [
        tally(back, kind, 1 + back * 97 % 5000) for back in range(60) for kind in ("succeeded", "unknown", "taken_over")
    ]
    tallies += [tally(0, "failed", 1), tally(0, "replayed", 100_000)]

    boxes = [box.attrib for box in drawn(chart(tallies, NOW, MINUTE, 60, "x", said).drawing).iter(f"{SVG}rect")]
    small = drawn(sparkline(tallies, NOW, MINUTE, 60, said))
    paths = "".join(path.attrib["d"] for path in small.iter(f"{SVG}path"))
    boxes += [
        {"x": x, "y": y, "height": tall} for x, y, tall in re.findall(r"M(\d+) (\d+)h8v(\d+)h-8z", paths)
    ]  # fmt: skip
    assert len(boxes) == 2 * (60 * 3 + 2)
    for box in boxes:
        assert 0 <= float(box["x"]) <= 60 * WIDE - 2
        assert float(box["height"]) >= 3
        assert 0 <= float(box["y"]) <= HIGH + STRIP
        assert float(box["y"]) + float(box["height"]) <= HIGH + STRIP + 1


def test_a_strangers_name_is_text_in_a_drawing() -> None:
    found = chart([tally(0, "unknown", 1, EVIL)], NOW, HOUR, 168, EVIL, said)

    assert drawn(found.drawing)[0].text == EVIL
    assert "style=" not in re.sub(r"<title>.*?</title>", "", found.drawing)
    assert re.fullmatch(r"\d\d-\d\d \d\d:00", found.ends)


def test_nothing_counted_is_an_empty_chart() -> None:
    found = chart([], NOW, MINUTE, 60, "x", said)

    assert (found.most, found.lines) == (0, [])
    assert not list(drawn(found.drawing).iter(f"{SVG}rect"))
