"""However much was counted, the present is drawn, and in time (X.04)."""

from __future__ import annotations

import pytest

from tests.console.browser import Browser
from umavez import Key, Once
from umavez.console.charts import reading
from umavez.console.charts.reading import FIRST, all_tallied, fitting
from umavez.core.telling.gauges import Gauge, gauge_tally
from umavez.core.telling.minutes import MINUTE, Tally
from umavez.stores import Tallies


def counted(once: Once, names: int, minutes: int, count: int = 1) -> int:
    """So many operations in each of the last minutes; when the present one began."""
    assert isinstance(once.store, Tallies)
    at = once.store.read(Key("loja", "clock", "now")).now // MINUTE * MINUTE
    tallies = [
        Tally(at - back * MINUTE, f"pay-{number}", "succeeded", count)
        for back in range(minutes)
        for number in range(names)
    ]
    once.store.tally("p-1", MINUTE, tallies)
    return at


def test_operations_without_end_leave_the_present_on_the_chart(
    browser: Browser, sqlite_once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST", 1_000)
    counted(sqlite_once, 90, 30)

    page = browser.get("/")
    assert "only 10 minutes are drawn" in page
    assert "at most 90" in page
    assert len(page) < 400_000


def test_a_minute_with_more_than_a_page_takes_in_is_drawn_as_far_as_it_goes(
    browser: Browser, sqlite_once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST", 50)
    counted(sqlite_once, 200, 3)

    assert f"only {FIRST} minutes are drawn" in browser.get("/")


def test_an_earlier_rush_takes_nothing_from_the_present(
    sqlite_once: Once, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    monkeypatch.setattr(reading, "MOST", 100)
    at = counted(sqlite_once, 1, 60)
    assert isinstance(sqlite_once.store, Tallies)
    rush = [Tally(at - 40 * MINUTE, f"rush-{number}", "failed", 1) for number in range(300)]
    sqlite_once.store.tally("p-2", MINUTE, [*rush, gauge_tally(at, Gauge("unknown", 1), "a")])

    books = browser.client._client._transport.app.books  # type: ignore[attr-defined]  # the console that it looks at
    found = all_tallied(books, MINUTE, 60)
    assert found.many == 30
    assert {tally.operation for tally in found.tallies} == {"pay-0"}


@pytest.mark.parametrize(
    ("numbers", "seconds", "many"),
    [(0, 0.0, 60), (10, 0.09, 60), (4_000, 0.0, 18), (40_000, 0.0, 2), (100, 0.5, 4), (100, 90.0, 2)],
)
def test_how_far_back_is_read_follows_from_the_last_minutes(numbers: int, seconds: float, many: int) -> None:
    assert fitting(60, numbers, seconds) == many


@pytest.mark.parametrize("count", [-5, 0, 2**62])
def test_numbers_that_nobody_could_have_counted_are_drawn(browser: Browser, sqlite_once: Once, count: int) -> None:
    counted(sqlite_once, 1, 3, count)

    assert '<svg class="chart"' in browser.get("/")
    assert "-5" not in browser.get("/operation?name=pay-0").partition("<main")[2]


def test_sums_beyond_all_bounds_cost_the_charts_and_not_the_page(browser: Browser, sqlite_once: Once) -> None:
    at = counted(sqlite_once, 1, 1, 2**62)
    assert isinstance(sqlite_once.store, Tallies)
    for process in ("p-2", "p-3"):
        sqlite_once.store.tally(process, MINUTE, [Tally(at, "pay-0", "succeeded", 2**62)])

    assert "holder gone" in browser.get("/")
