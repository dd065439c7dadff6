"""Operations that nobody decides about alone: one proposes, another agrees in time (X.04)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.console.browser import Browser, Forms
from tests.console.conftest import Lost, place, seen
from umavez import Once, Record
from umavez.console.together.eyes import Proposal
from umavez.core.record import Status
from umavez.errors import OutcomeUnknown

Opened = Callable[..., Browser]
WHY, TOO = {"reason": "on the statement of the bank"}, {"reason": "I looked at it, too"}


def doubtful(once: Once, key: str) -> tuple[Callable[..., Any], Record]:
    """A payment out of a large account, whose outcome nobody knows."""

    def lost(order: str) -> None:
        raise Lost

    wire = once.operation("wire", key=lambda order: order, unknown="hold", four_eyes=True)(lost)
    with suppress(Lost, OutcomeUnknown):
        wire(key)
    return wire, seen(once, "wire", key)


def proposed(browser: Browser, record: Record, action: str = "happened") -> Any:
    fields = browser.form(place(record, action)) | WHY | ({"result": '{"id": 7}'} if action == "happened" else {})
    return browser.post(place(record, action), fields)


def test_two_people_decide_and_the_audit_names_both(once: Once, opened: Opened) -> None:
    name = f"ana-{secrets.token_hex(3)}"
    wire, record = doubtful(once, "W-1")
    ana, rui = opened("look", "decide", name=name), opened("look", "decide", name="rui")
    assert "takes two people" in ana.get(place(record, "happened"))

    first = proposed(ana, record)

    assert first.headers["location"].endswith("done=proposed")
    assert seen(once, "wire", "W-1") == record, "a proposal changes nothing"
    with pytest.raises(OutcomeUnknown):
        wire("W-1")
    own = ana.get(place(record))
    assert f"{name} proposes" in own
    assert "/agree" not in own
    assert ana.get(place(record, "agree"), 403), "nobody agrees with themselves"
    assert place(record, "agree") in Forms(rui.get(place(record))).links
    page = rui.get(place(record, "agree"))
    assert "{&#34;id&#34;: 7}" in page, "who agrees sees what to"

    fields = rui.form(place(record, "agree"))
    assert rui.post(place(record, "agree"), fields | {"reason": "short"}).status_code == 400
    done = rui.done(place(record, "agree"), fields | TOO)

    assert "recorded as happened" in done
    assert wire("W-1") == {"id": 7}
    evidence = json.loads(seen(once, "wire", "W-1").evidence or "[]")[-1]
    assert evidence["by"] == f"{name} + rui"
    assert WHY["reason"] in evidence["reason"]
    assert TOO["reason"] in evidence["reason"]
    story = rui.get("/decisions")
    assert f"{name} + rui" in story
    assert "propose: proposed" in story
    assert rui.post(place(record, "agree"), fields | TOO).status_code == 409, "there is nothing left to agree to"


def test_a_proposal_about_one_attempt_is_none_about_the_next(once: Once, opened: Opened) -> None:
    wire, record = doubtful(once, "W-2")
    ana, rui = opened("look", "decide"), opened("look", "decide", name="rui")
    proposed(ana, record, "not-happened")
    fields = rui.form(place(record, "agree")) | TOO
    once.release("wire", "W-2", by="code", reason="by the application itself")
    with suppress(Lost, OutcomeUnknown):
        wire("W-2")
    later = seen(once, "wire", "W-2")

    assert rui.post(place(record, "agree"), fields).status_code == 409
    assert seen(once, "wire", "W-2") == later
    assert "proposes" not in rui.get(place(record))


def test_a_proposal_is_over_after_a_quarter_of_an_hour(
    once: Once, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, record = doubtful(once, "W-3")
    ana, rui = opened("look", "decide"), opened("look", "decide", name="rui")
    proposed(ana, record)
    assert "proposes" in rui.get(place(record))

    monkeypatch.setattr(Proposal, "left", lambda self, now: self.at - now)
    assert "proposes" not in rui.get(place(record))
    assert rui.get(place(record, "agree"), 409)


def test_a_double_click_proposes_once_and_another_proposal_waits(once: Once, opened: Opened) -> None:
    _, record = doubtful(once, "W-4")
    ana, rui = opened("look", "decide"), opened("look", "decide", name="rui")
    fields = ana.form(place(record, "happened")) | WHY | {"result": "1"}
    for _ in range(2):
        assert ana.post(place(record, "happened"), fields).status_code == 303

    other = proposed(rui, record, "not-happened")

    assert other.status_code == 409
    assert seen(once, "wire", "W-4") == record


def test_an_order_about_many_leaves_such_operations_out(browser: Browser, sqlite_once: Once) -> None:
    _, record = doubtful(sqlite_once, "W-5")

    page = browser.get("/bulk?q=status%3Aunknown&action=not-happened")

    assert "finds nothing that could be decided about" in page
    assert seen(sqlite_once, "wire", "W-5").status is Status.UNKNOWN
    assert record.status is Status.UNKNOWN
