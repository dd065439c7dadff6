"""Many records decided about at once: as many as were typed, as they were seen, each once, and stoppable (X.04)."""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.console.browser import SAME, Browser, Forms
from tests.console.conftest import doubt, place, seen
from umavez import Once, console
from umavez.console import EVERYTHING, Who
from umavez.console.orders.choosing import MOST, Sight, TooMany, chosen
from umavez.console.orders.running import Bulks
from umavez.console.search import parsed
from umavez.core.record import Status
from umavez.errors import ConfigurationError, UmavezError
from umavez.leases import Leases
from umavez.tokens import Tokens

Opened = Callable[..., Browser]
WHY = {"reason": "the bank has none of these"}


def page_of(search: str, action: str = "not-happened") -> str:
    return f"/bulk?{urlencode({'q': search, 'action': action})}"


def found_by(once: Once) -> str:
    return f"status:unknown op:charge scope:{once.scope}"


def ended(browser: Browser, where: str) -> str:
    """The page of an order once nobody is at it any more."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        answer = browser.client.get(where)
        assert answer.status_code == 200, answer.text
        if "refresh" not in answer.headers and "Nobody is at it" not in answer.text:
            return answer.text
    raise AssertionError(answer.text)


def numbers(page: str) -> dict[str, int]:
    found = re.findall(r'<div class="tile[^"]*"><b>(\d+)</b> ([^<]+)</div>', page)
    return {name.partition(":")[0]: int(number) for number, name in found}


def told(*counts: int) -> dict[str, int]:
    return dict(zip(("decided", "passed over", "errors", "not yet"), counts, strict=True))


def test_all_that_were_seen_are_freed_each_with_its_audit(once: Once, opened: Opened) -> None:
    records = [doubt(once, f"B-{number}") for number in range(3)]
    other = doubt(once, "B-9", operation="refund")
    browser = opened()
    where = page_of(found_by(once))
    reason = f"the bank has none {secrets.token_hex(4)}"
    fields = browser.form(where) | {"reason": reason}

    answer = browser.post(where, fields | {"typed": "3"})
    assert answer.status_code == 303, answer.text
    place_ = answer.headers["location"]
    page = ended(browser, place_)

    assert numbers(page) == told(3, 0, 0, 0)
    assert found_by(once).replace('"', "") in page
    for record in records:
        again = once.run("charge", key=record.key.value, call=lambda: "ran", unknown="hold")
        assert (again.value, again.replayed) == ("ran", False)
    assert seen(once, "refund", "B-9") == other, "what the search does not name is left alone"
    story = browser.get("/decisions")
    assert story.count(reason) == 4, "the order, and each of the three"
    assert place_ in Forms(story).links


@pytest.mark.parametrize("stamp", ["999999999999999", "253402300800000", "0", "-1", "²"])
def test_when_it_was_seen_is_what_the_form_says_within_reason(once: Once, opened: Opened, stamp: str) -> None:
    doubt(once, "B-1")
    browser = opened()
    where = page_of(found_by(once))

    answer = browser.post(where, browser.form(where) | WHY | {"typed": "1", "stamp": stamp})

    assert answer.status_code == 303, answer.text
    assert numbers(ended(browser, answer.headers["location"])) == told(1, 0, 0, 0)


def test_one_answer_is_given_to_all_of_an_operation(once: Once, opened: Opened) -> None:
    for number in range(2):
        doubt(once, f"B-1{number}")
    browser = opened()
    where = page_of(found_by(once), "happened")
    fields = browser.form(where) | WHY | {"typed": "2"}

    assert browser.post(where, fields | {"result": "{"}).status_code == 400, "what could not be replayed is refused"
    fields = browser.form(where) | WHY | {"typed": "2", "result": '{"paid": true}'}
    ended(browser, browser.post(where, fields).headers["location"])

    for number in range(2):
        again = once.run("charge", key=f"B-1{number}", call=lambda: "ran", unknown="hold")
        assert (again.value, again.replayed) == ({"paid": True}, True)


def test_what_changed_or_came_since_the_page_was_drawn_is_left_alone(once: Once, opened: Opened) -> None:
    """The page of somebody who went for a coffee: one was decided meanwhile, one is another attempt, one is new."""
    doubt(once, "B-20")
    for key in ("B-21", "B-22"):
        doubt(once, key)
    browser = opened()
    where = page_of(found_by(once))
    fields = browser.form(where) | WHY | {"typed": "3"}
    once.release("charge", "B-21", by="rui", reason="he was faster")
    once.release("charge", "B-22", by="rui", reason="he was faster")
    again = doubt(once, "B-22")
    new = doubt(once, "B-23")

    page = ended(browser, browser.post(where, fields).headers["location"])

    assert numbers(page) == told(1, 2, 0, 0)
    assert seen(once, "charge", "B-22") == again
    assert seen(once, "charge", "B-23") == new


def test_a_double_click_is_one_order(once: Once, opened: Opened) -> None:
    doubt(once, "B-30")
    browser = opened()
    where = page_of(found_by(once))
    reason = f"clicked twice {secrets.token_hex(4)}"
    fields = browser.form(where) | {"typed": "1", "reason": reason}

    answers = browser.client.together(3, where, data=fields, headers=SAME)
    assert {answer.status_code for answer in answers} == {303}
    assert len({answer.headers["location"] for answer in answers}) == 1
    page = ended(browser, answers[0].headers["location"])

    assert numbers(page) == told(1, 0, 0, 0)
    assert browser.get("/decisions").count(reason) == 2
    assert browser.post(where, fields | {"reason": "another reason altogether"}).status_code == 409


@pytest.mark.parametrize("wrong", [{"typed": "2"}, {"typed": ""}, {"reason": "short"}, {"sight": "?"}, {"sight": ""}])
def test_an_order_that_is_not_whole_does_nothing(browser: Browser, sqlite_once: Once, wrong: dict[str, str]) -> None:
    record = doubt(sqlite_once, "B-40")
    where = page_of(found_by(sqlite_once))
    fields = browser.form(where) | WHY | {"typed": "1"} | wrong

    assert browser.post(where, fields).status_code == 400
    assert seen(sqlite_once, "charge", "B-40") == record


@pytest.mark.parametrize(
    ("search", "action"),
    [
        ("", "not-happened"),
        ("op:charge", "not-happened"),
        ("status:success", "not-happened"),
        ("status:failed op:charge", "happened"),
        ("status:unknown", "happened"),
        ("status:unknown key:B-1", "not-happened"),
        ("status:unknown", "delete"),
        ('status:unknown op:"', "not-happened"),
    ],
)
def test_a_search_that_no_order_can_be_about_is_refused(browser: Browser, search: str, action: str) -> None:
    assert browser.get(page_of(search, action), 400)


def test_leases_tokens_outcomes_and_the_consoles_own_are_never_in_an_order(browser: Browser, sqlite_once: Once) -> None:
    sqlite_once.run("charge", key="paid", call=lambda: 1, unknown="hold")
    Leases(sqlite_once).acquire("gone", lease=0.05)
    Tokens(sqlite_once, "confirm", unknown="hold").issue("ana", {"ride": 1})
    time.sleep(0.1)

    for search in ("status:unknown", "status:lapsed", "status:failed age:<1h"):
        assert "finds nothing that could be decided about" in browser.get(page_of(search)), search


def test_an_order_is_bounded(sqlite_once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["umavez.console.orders.choosing"], "MOST", 2)
    app = console(sqlite_once, authorize=lambda _: Who("ana", EVERYTHING), panels=[])
    for number in range(3):
        doubt(sqlite_once, f"B-5{number}")
    with pytest.raises(TooMany):
        chosen(app.books, parsed("status:unknown"), "not-happened")
    assert Browser(app).get(page_of("status:unknown"), 400)
    app.close()
    with pytest.raises(ConfigurationError):
        Sight.read("A" * (MOST * 100))


class Slow:
    """Carries orders out only when told to, in the test's own thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        monkeypatch.setattr(Bulks, "begin", lambda _, name: bool(self.names.append(name)) or True)


def test_an_order_is_stopped_after_the_record_at_hand(
    browser: Browser, sqlite_once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    monkeypatch.setattr(sys.modules["umavez.console.orders.running"], "CHUNK", 1)
    for number in range(3):
        doubt(sqlite_once, f"B-6{number}")
    where = page_of(found_by(sqlite_once))
    place_ = browser.post(where, browser.form(where) | WHY | {"typed": "3"}).headers["location"]
    app = console(sqlite_once, authorize=lambda _: Who("rui", EVERYTHING), panels=[])
    own = app.bulks.is_stopped
    looks: list[str] = []

    def stopped_at_the_second_look(name: str) -> bool:
        looks.append(name)
        if len(looks) == 2:
            page = browser.client.get(place_)
            assert page.headers["refresh"] == "2"
            fields = next(fields for action, fields in Forms(page.text).found if action.endswith("/stop"))
            for _ in range(2):
                assert browser.post(f"{place_}/stop", fields).status_code == 303, "twice is once"
            assert "stops after the record" in browser.get(place_)
        return own(name)

    monkeypatch.setattr(app.bulks, "is_stopped", stopped_at_the_second_look)
    app.bulks.carry_out(slow.names[0])

    page = browser.get(place_)
    assert numbers(page) == told(1, 0, 0, 2)
    assert ">stopped<" in page
    assert "stop bulk" in browser.get("/decisions")
    app.close()


class Died(BaseException):
    """The process is gone."""


def test_an_order_whose_process_died_is_taken_up_and_repeats_nothing(
    browser: Browser, sqlite_once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    monkeypatch.setattr(sys.modules["umavez.console.orders.running"], "CHUNK", 2)
    records = [doubt(sqlite_once, f"B-7{number}") for number in range(5)]
    where = page_of(found_by(sqlite_once))
    place_ = browser.post(where, browser.form(where) | WHY | {"typed": "5"}).headers["location"]
    assert "Nobody is at it" in browser.get(place_)
    app = console(sqlite_once, authorize=lambda _: Who("rui", EVERYTHING), panels=[])
    resolve = app.decisions.resolve
    done: list[str] = []

    def dies_after_three(deed: Any, *args: Any, **options: Any) -> Any:
        if len(done) == 3:
            raise Died
        done.append(deed.form)
        return resolve(deed, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(app.decisions, "resolve", dies_after_three)
        with pytest.raises(Died):
            app.bulks.carry_out(slow.names[0])
    page = browser.get(place_)
    assert "Nobody is at it" in page
    fields = next(fields for action, fields in Forms(page).found if action.endswith("/go"))
    assert browser.post(f"{place_}/go", fields).status_code == 303
    app.bulks.carry_out(slow.names[-1])

    assert numbers(browser.get(place_)) == told(5, 0, 0, 0), "what was done before the death is counted"
    for record in records:
        assert (seen(sqlite_once, "charge", record.key.value).evidence or "").count(WHY["reason"]) == 1
    app.close()


def test_the_error_of_one_record_does_not_end_the_order(
    browser: Browser, sqlite_once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    for number in range(3):
        doubt(sqlite_once, f"B-8{number}")
    where = page_of(found_by(sqlite_once))
    place_ = browser.post(where, browser.form(where) | WHY | {"typed": "3"}).headers["location"]
    app = console(sqlite_once, authorize=lambda _: Who("rui", EVERYTHING), panels=[])
    resolve = app.decisions.resolve

    def refuses_one(deed: Any, *args: Any, **options: Any) -> Any:
        if deed.key.value == "B-81":
            raise UmavezError("<b>not this one</b>")
        return resolve(deed, *args, **options)

    monkeypatch.setattr(app.decisions, "resolve", refuses_one)
    app.bulks.carry_out(slow.names[0])

    page = browser.get(place_)
    assert numbers(page) == told(2, 0, 1, 0)
    assert "&lt;b&gt;not this one" in page
    assert seen(sqlite_once, "charge", "B-81").status is Status.UNKNOWN
    app.close()


def test_only_those_who_govern_order_and_the_way_there_is_shown_to_them(once: Once, opened: Opened) -> None:
    records = [doubt(once, f"B-9{number}") for number in range(2)]
    deciding, governing = opened("look", "decide"), opened()
    assert deciding.get(page_of(found_by(once)), 403)
    for path in ("/unknown", f"/records?{urlencode({'q': found_by(once)})}"):
        assert "/bulk?" in governing.get(path)
        assert "/bulk?" not in deciding.get(path)
    fields = governing.form(page_of(found_by(once))) | WHY | {"typed": "2"}
    mark = deciding.form(place(records[0], "happened"))["token"]
    assert deciding.post(page_of(found_by(once)), fields | {"token": mark}).status_code == 403
    assert governing.post(page_of(found_by(once)), fields, **{"sec-fetch-site": "cross-site"}).status_code == 403
    assert seen(once, "charge", "B-90") == records[0]
    assert governing.get("/bulk/there-is-none", 404)
