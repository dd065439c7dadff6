"""How much stood in a store over time, on the overview and on a page of its own, in each store (X.04)."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from tests.console.browser import Browser, Forms
from umavez import Key, Once
from umavez.core.telling.gauges import Gauge, gauge_tally
from umavez.core.telling.minutes import HOUR, MINUTE
from umavez.errors import StoreUnavailable
from umavez.stores import Tallies

Opened = Callable[..., Browser]


def looked(once: Once, span: int, back: int, *gauges: Gauge) -> None:
    """As if somebody had seen this so many spans ago."""
    assert isinstance(once.store, Tallies)
    at = (once.store.read(Key(once.scope, "clock", "now")).now // span - back) * span
    mark = secrets.token_hex(6)
    once.store.tally(f"p-{mark}", span, [gauge_tally(at, gauge, mark) for gauge in gauges])


def text_of(page: str) -> str:
    return " ".join("".join(Forms(page).text).split())


def test_the_highest_of_all_who_looked_is_drawn(once: Once, opened: Opened) -> None:
    looked(once, MINUTE, 2, Gauge("unknown", 7, 900.0), Gauge("outbox", 0))
    looked(once, MINUTE, 2, Gauge("unknown", 5_000_001, 5.0 * 86_400))
    looked(once, HOUR, 5, Gauge("dead", 3))
    browser = opened("look")

    overview = text_of(browser.get("/"))
    assert "Outcomes that are unknown at most 5000001 · last 5000001" in overview
    assert "The oldest unknown outcome at most 5 days" in overview
    assert "umavez.gauges" not in overview, "it is no operation"
    page = text_of(browser.get("/over-time"))
    assert "Outcomes that are unknown at most 5000001" in page
    assert "Dead messages at most" in page
    assert "Resultados em dúvida" in text_of(opened("look", language="pt").get("/over-time"))


def test_what_was_looked_at_and_not_there_is_said(browser: Browser, sqlite_once: Once) -> None:
    looked(sqlite_once, MINUTE, 1, Gauge("unknown", 0), Gauge("outbox", 0))
    page = text_of(browser.get("/over-time"))
    assert "Looked at, and there was nothing: Outcomes that are unknown; Messages that are due." in page
    assert "The oldest unknown outcome" not in page


def test_where_nobody_looked_it_is_said_who_does(browser: Browser) -> None:
    assert "Nobody has looked yet" in browser.get("/over-time")


def test_the_overview_is_drawn_without_charts_that_take_too_long(
    browser: Browser, sqlite_once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        raise StoreUnavailable("too long")

    monkeypatch.setattr(sqlite_once.store, "tallied", slow, raising=True)
    page = text_of(browser.get("/"))
    assert "The charts took too long and are left out." in page
    assert "holder gone" in page
