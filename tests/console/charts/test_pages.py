"""The last hour and the last week, on the overview and on the page of an operation, in each store (X.04)."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest

from tests.console.browser import Browser, Forms
from umavez import Key, Once
from umavez.core.telling.minutes import HOUR, MINUTE, Tally
from umavez.stores import Tallies

Opened = Callable[..., Browser]


def counted(once: Once, operation: str, minutes: dict[str, int], hours: dict[str, int]) -> None:
    """As if so many of each kind had ended two minutes ago, and two hours ago."""
    assert isinstance(once.store, Tallies)
    now = once.store.read(Key(once.scope, "clock", "now")).now
    for span, kinds in ((MINUTE, minutes), (HOUR, hours)):
        at = now // span * span - 2 * span
        quick = (0, 0, 1, *[0] * 7)
        once.store.tally("test", span, [Tally(at, operation, kind, many, 0.05, quick) for kind, many in kinds.items()])


def test_calls_are_drawn_on_the_overview_and_on_the_page_of_an_operation(once: Once, opened: Opened) -> None:
    name = f"charge {once.scope}"
    once.run(name, key="1", call=lambda: 1, unknown="hold")
    counted(once, name, {"succeeded": 30, "replayed": 10, "unknown": 2}, {"failed": 77})
    browser = opened("look")

    overview = browser.get("/")
    assert '<svg class="chart"' in overview
    assert "unknown 2" in overview
    assert f"/operation?name={quote(name).replace('%20', '+')}" in overview
    page = browser.get(f"/operation?name={quote(name)}")
    text = " ".join("".join(Forms(page).text).split())
    assert page.count('<svg class="chart"') == 2
    assert "Calls per minute" in text
    assert "succeeded 30, replayed 10, failed 0, unknown 2, taken over 0" in text
    assert "failed 77" in text, "the week has hours of its own"
    assert "style=" not in page


def test_an_operation_without_numbers_says_so(browser: Browser) -> None:
    assert "Nothing was counted for this operation" in browser.get("/operation?name=none")
    assert "No calls were counted" in browser.get("/")


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_an_operation_needs_a_name(browser: Browser, name: str) -> None:
    browser.get(f"/operation?name={name}", 400)
