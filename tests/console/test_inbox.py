"""The inbox says where what is in doubt came from, and the overview what needs somebody (X.04)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.console.browser import Browser, Forms
from tests.console.conftest import doubt
from umavez import Key, Once
from umavez.cli.doctor import command as doctor
from umavez.cli.doctor.findings import Examination, Finding, Level
from umavez.core.record import Draft, Status
from umavez.core.telling.events import Process
from umavez.core.telling.origin import originated, whence
from umavez.messaging import Message, Outbox
from umavez.sql.database import writing
from umavez.stores import Chronicle

Opened = Callable[..., Browser]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def text_of(page: str) -> str:
    return " ".join("".join(Forms(page).text).split())


def test_the_inbox_names_the_request_and_the_trace_of_each(once: Once, opened: Opened) -> None:
    whole = originated("feed-1", whence(f"00-{TRACE}-00f067aa0ba902b7-01", f"req-{once.scope}") or "")
    earlier = originated("gone-1", whence(None, f"old-{once.scope}") or "")
    draft = Draft(Key(once.scope, "POST /pagamentos", "1"), "feed-1", Status.UNKNOWN, False, origin=whole)
    for one in (draft, draft._replace(key=Key(once.scope, "POST /pagamentos", "2"), origin=earlier)):
        once.store.swap(None, one)
    doubt(once, "3")

    page = text_of(opened("look").get("/unknown"))
    assert f"request req-{once.scope} trace {TRACE}" in page
    assert f"request old-{once.scope} (of an earlier claim)" in page
    assert page.count("request ") >= 2


def test_the_overview_counts_dead_messages_and_processes_with_ages(browser: Browser, sqlite_once: Once) -> None:
    url = str(sqlite_once.url)
    with writing(url, "messages") as connection:
        Outbox().append(connection, Message("topic", "{}"))
        connection.execute("UPDATE umavez_outbox SET state = 'DEAD'")
    assert isinstance(sqlite_once.store, Chronicle)
    sqlite_once.store.announce(Process("feed", "web-3", 412, "loja", "0.1.0", 1000))
    lapsed = Draft(Key("loja", "charge", "9"), "feed-1", Status.PENDING, False, lease=0)
    sqlite_once.store.swap(None, lapsed)

    page = text_of(browser.get("/"))
    assert "1 dead message" in page
    assert "1 holder gonethe oldest 0 s ago" in page
    assert "1 process alive" in page


def test_the_overview_says_which_settings_put_records_at_risk(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    risk = Finding("fsync", "off<b>", Level.DANGER, "Switch it on.")
    found = (risk, replace(risk, setting="fine", level=Level.FINE), replace(risk, setting="noted", level=Level.NOTE))
    monkeypatch.setattr(doctor, "examine", lambda url: Examination(url, "SQLite", findings=found))

    page = browser.get("/")
    assert "fsync <b>off&lt;b&gt;</b>" in page
    assert "Switch it on." in page
    assert "noted" not in page
