"""Who looks after a record in doubt, and what is set aside for a while (X.04)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.browser import Browser
from tests.console.conftest import doubt, place, seen
from umavez import Once
from umavez.console.together.notes import Note

Opened = Callable[..., Browser]
LATER = {"hours": "4", "reason": "the bank answers in the morning"}


def form_of(browser: Browser, record: object, show: str = "") -> dict[str, str]:
    digest = record.key.digest.hex()  # type: ignore[attr-defined]  # a Record
    return browser.form(f"/unknown?show={show}", f"{digest}/note")


def test_somebody_takes_a_record_on_and_finds_it_among_theirs(once: Once, opened: Opened) -> None:
    mine, other = doubt(once, "N-1"), doubt(once, "N-2")
    browser = opened("look", "decide", name="ana")

    fields = form_of(browser, mine) | {"to": "ana"}
    for _ in range(2):
        assert browser.post(place(mine, "note"), fields).status_code == 303

    page = browser.get("/unknown?show=mine")
    assert place(mine) in page
    assert place(other) not in page
    assert "looks after it" in page
    assert place(other) in browser.get("/unknown")
    assert seen(once, "charge", "N-1") == mine, "the record itself is not touched"
    assert "note: assigned" in browser.get("/decisions")


def test_what_is_set_aside_comes_back_in_time_or_with_the_next_attempt(
    once: Once, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = doubt(once, "N-3")
    browser = opened("look", "decide", name="ana")
    without_reason = form_of(browser, record) | {"hours": "4"}
    assert browser.post(place(record, "note"), without_reason).status_code == 400
    assert place(record) in browser.get("/unknown")

    assert browser.post(place(record, "note"), form_of(browser, record) | LATER).status_code == 303

    assert place(record) not in browser.get("/unknown")
    page = browser.get("/unknown?show=all")
    assert place(record) in page
    assert LATER["reason"] in page
    with monkeypatch.context() as patched:
        patched.setattr(Note, "hides", lambda self, _, now: self.until > now + 5 * 3_600_000)
        assert place(record) in browser.get("/unknown"), "four hours are over"
    once.release("charge", "N-3", by="rui", reason="he was faster")
    doubt(once, "N-3")
    assert place(record) in browser.get("/unknown"), "another attempt is another doubt"


def test_a_note_about_what_has_changed_is_not_kept(once: Once, opened: Opened) -> None:
    record = doubt(once, "N-4")
    browser = opened("look", "decide", name="ana")
    fields = form_of(browser, record) | LATER
    once.release("charge", "N-4", by="rui", reason="he was faster")
    doubt(once, "N-4")

    assert browser.post(place(record, "note"), fields).status_code == 409
    assert place(record) in browser.get("/unknown")


def test_only_those_who_decide_take_notes(once: Once, opened: Opened) -> None:
    record = doubt(once, "N-5")
    deciding, looking = opened("look", "decide"), opened("look")
    assert "/note" not in looking.get("/unknown")
    fields = form_of(deciding, record) | LATER
    assert looking.post(place(record, "note"), fields).status_code == 403
    assert deciding.post(place(record, "note"), fields, origin="https://elsewhere.example").status_code == 403
    assert place(record) in deciding.get("/unknown")
