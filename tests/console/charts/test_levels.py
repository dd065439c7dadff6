"""How high something stood, as a drawing (X.04)."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from umavez.console.charts.drawing import HIGH, STRIP, WIDE
from umavez.console.charts.levels import Series, level
from umavez.console.charts.pages import durations
from umavez.core.telling.minutes import HOUR, MINUTE, Tally, bucket_of

NOW = 1_800_000_030_000
SVG = "{http://www.w3.org/2000/svg}"
EVIL = '<x-evil onclick="a()">&amp;\''


def drawn(markup: str) -> ET.Element:
    return ET.fromstring(str(markup).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))  # noqa: S314  # it is ours


def whole(value: float) -> str:
    return f"{value:.0f}"


def test_what_nobody_looked_at_has_no_bar_and_what_was_nothing_has_its_number() -> None:
    found = level("Unknown", [Series("Unknown", "unknown", [None, 4.0, 0.0, 2.0])], NOW, MINUTE, whole)
    picture = drawn(found.drawing)

    assert [box.attrib["x"] for box in picture.iter(f"{SVG}rect")] == [str(3 * WIDE + 1), str(WIDE + 1)]
    assert [numbers for _, numbers in found.lines] == [["2"], ["0"], ["4"]], "the newest first"
    assert (found.most, found.last) == ("4", "2")
    assert picture[0].text == "Unknown"


def test_bars_stay_in_the_picture_however_large_or_small() -> None:
    values = [1e300, 1.0, 5e-324, 0.0]
    found = level("x", [Series("x", "unknown", values), Series("y", "failed", values)], NOW, HOUR, str)

    boxes = [box.attrib for box in drawn(found.drawing).iter(f"{SVG}rect")]
    assert len(boxes) == 6
    for box in boxes:
        assert 3 <= float(box["height"]) <= HIGH
        assert float(box["y"]) + float(box["height"]) <= HIGH + STRIP


def test_every_word_of_a_level_is_text() -> None:
    found = level(EVIL, [Series(EVIL, "unknown", [1.0])], NOW, MINUTE, lambda _: EVIL)

    picture = drawn(found.drawing)
    assert picture[0].text == picture[1].text == EVIL
    assert [title.text or "" for title in picture.iter(f"{SVG}title")][1].endswith(EVIL)


def test_nothing_seen_is_an_empty_level() -> None:
    found = level("x", [Series("x", "unknown", [None] * 60)], NOW, MINUTE, whole)

    assert (found.most, found.last, found.lines) == ("0", "—", [])


def test_durations_are_told_by_the_minute() -> None:
    def ran(back: int, seconds: float, many: int) -> Tally:
        buckets = [0] * 10
        buckets[bucket_of(seconds)] = many
        return Tally(NOW // MINUTE * MINUTE - back * MINUTE, "pay", "succeeded", many, seconds * many, tuple(buckets))

    tallies = [ran(2, 0.02, 99), ran(2, 0.2, 1), ran(0, 0.9, 10), Tally(NOW // MINUTE * MINUTE, "pay", "replayed", 7)]

    found = durations(tallies, NOW, MINUTE, 60, lambda text, **_: text)
    assert [numbers for _, numbers in found.lines] == [["975 ms", "750 ms"], ["24 ms", "15 ms"]]
    assert found.most == "975 ms"
