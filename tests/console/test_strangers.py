"""Whatever stands in an address or a form, a page answers for it: nothing breaks or is markup (X.04)."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest

from tests.console.browser import SAME, Browser
from tests.console.conftest import doubt, place, seen
from umavez import Once
from umavez.console.looks import position
from umavez.migration import migrate

Opened = Callable[..., Browser]
PARAMETERS = {
    "/": ("lang", "theme"),
    "/operation": ("name",),
    "/over-time": ("x",),
    "/unknown": ("after", "show"),
    "/records": ("q", "after", "days"),
    "/messages": ("subscriber", "state", "topic", "done"),
    "/message": ("id", "subscriber"),
    "/leases": ("days", "after"),
    "/tokens": ("owner", "purpose"),
    "/decisions": ("month", "after"),
    "/decisions.csv": ("month",),
    "/bulk": ("q", "action"),
    "/message/discard": ("id", "subscriber"),
}
STRANGE = {
    "NUL": "a%00b",
    "no text": "%ff%fe%ed%a0%80",
    "markup": quote("\"'><x-evil onclick=a()>{{7*7}}"),
    "beyond ASCII": quote("joão ٣²\u202e😀"),
    "long": "x" * 10_000,
    "a late cursor": "9999999999999999-" + "0" * 64,
    "a great number": "9" * 40,
    "a line": "a%0d%0aSet-Cookie:evil=1",
}


@pytest.mark.parametrize("strange", STRANGE)
def test_every_parameter_takes_anything(once: Once, opened: Opened, strange: str) -> None:
    if once.url is not None and not once.url.startswith(("memory", "redis")):
        migrate(once.url)
    record = doubt(once, "A-17")
    browser = opened()
    own = [(place(record), name) for name in ("only", "done")]
    asked = [*own, *((path, name) for path, names in PARAMETERS.items() for name in names)]
    for path, name in asked:
        answer = browser.client.get(f"{path}?{name}={STRANGE[strange]}")
        assert answer.status_code < 500 or "Redis finds by" in answer.text, (path, name, answer.text)
        assert "<x-evil" not in answer.text
        assert "evil" not in answer.headers.get("set-cookie", "")
        assert len(answer.content) < 300_000


@pytest.mark.parametrize("strange", ["a\0b", "joão 😀\u202e", "\ud800", "x" * 100_000, "<x-evil onclick=a()>", ""])
def test_every_field_of_a_form_takes_anything(once: Once, opened: Opened, strange: str) -> None:
    record = doubt(once, "A-17")
    browser = opened()
    where = place(record, "happened")
    whole = browser.form(where) | {"result": "1", "reason": "on the statement of the bank"}
    raw = quote(strange, errors="surrogatepass")
    for name in (*whole, "typed", "status", "headers", "seen_status"):
        fields = "&".join(f"{key}={raw if key == name else quote(value)}" for key, value in {**whole, name: ""}.items())
        kind = {"content-type": "application/x-www-form-urlencoded", **SAME}
        answer = browser.client.post(where, content=fields, headers=kind)
        assert answer.status_code < 500, (name, answer.text)
        assert "<x-evil" not in answer.text
        again = seen(once, "charge", "A-17")
        if again.settled is not None:
            break  # a strange reason is a reason, too


def test_a_key_beyond_ascii_has_a_page_in_every_store(once: Once, opened: Opened) -> None:
    if once.url is not None and not once.url.startswith(("memory", "redis")):
        migrate(once.url)
    record = doubt(once, f"joão-{once.scope}")

    assert "joão" in opened().get(place(record))
    found = opened().client.get(f"/records?q={quote(record.key.value)}")
    assert found.headers["location"].endswith(place(record))


def test_a_cursor_beyond_all_clocks_begins_at_the_start() -> None:
    assert position(f"253402300799999-{'0' * 64}") is not None
    assert position(f"253402300800000-{'0' * 64}") is None


def test_what_redis_cannot_look_for_is_no_reason_to_hide_a_complaint(once: Once, opened: Opened) -> None:
    assert "close the quotation mark" in opened().get("/records?q=key%3A%22a", 400)
