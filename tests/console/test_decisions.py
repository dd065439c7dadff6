"""What is decided in the console: once for each form, about what was seen, and kept with who and why (X.04, S3.08)."""

from __future__ import annotations

import asyncio
import html
import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.console.browser import SAME, Browser, Forms
from tests.console.conftest import Lost, doubt, place, seen
from umavez import AsyncOnce, CannotTell, Happened, NotHappened, Once, OutcomeUnknown, Record, Status, console
from umavez.console import EVERYTHING, Who
from umavez.console.decisions import OPERATION, SCOPE, Decisions
from umavez.http import ANONYMOUS, Route
from umavez.http.wsgi import Idempotency
from umavez.leases import Leases
from umavez.tokens import TokenCancelled, Tokens

REASON = {"reason": "seen on the bank's statement"}
Opened = Callable[..., Browser]


def repeated(once: Once, key: str, operation: str = "charge") -> Any:
    """What a caller gets who comes again; running once more is what must not happen unasked."""
    return once.run(operation, key=key, call=lambda: "ran again", unknown="hold")


def audits(browser: Browser) -> str:
    return " ".join("".join(Forms(browser.get("/decisions")).text).split())


def test_what_happened_is_what_every_repeat_gets(once: Once, opened: Opened) -> None:
    record = doubt(once, "A-17")
    browser = opened("look", "decide")
    assert "A-17" in browser.get("/unknown")

    page = browser.done(
        place(record, "happened"), browser.form(place(record, "happened")) | REASON | {"result": '{"id": 7}'}
    )

    assert "recorded as happened" in page
    again = repeated(once, "A-17")
    assert (again.value, again.replayed) == ({"id": 7}, True)
    evidence = json.loads(seen(once, "charge", "A-17").evidence or "[]")[-1]
    assert (evidence["by"], evidence["reason"], evidence["what"]) == ("ana", REASON["reason"], "resolved")
    story = audits(browser)
    for word in ("ana", "127.0.0.1", "happened", "charge A-17", REASON["reason"], record.stamp):
        assert word in story, word


def test_what_did_not_happen_runs_again_and_only_then(once: Once, opened: Opened) -> None:
    record = doubt(once, "A-18")
    browser = opened("look", "decide")
    with pytest.raises(OutcomeUnknown):
        repeated(once, "A-18")

    page = browser.done(place(record, "not-happened"), browser.form(place(record, "not-happened")) | REASON)

    assert "the key is free" in page
    again = repeated(once, "A-18")
    assert (again.value, again.replayed) == ("ran again", False)


def test_a_double_click_does_it_once(once: Once, opened: Opened) -> None:
    record = doubt(once, "A-19")
    browser = opened("look", "decide")
    where = place(record, "happened")
    fields = browser.form(where) | REASON | {"result": "1"}

    first, second = browser.post(where, fields), browser.post(where, fields)

    assert (first.status_code, second.status_code) == (303, 303)
    assert first.headers["location"].endswith("done=happened")
    assert second.headers["location"].endswith("done=again")
    assert "nothing was done twice" in browser.get(second.headers["location"])
    assert len(json.loads(seen(once, "charge", "A-19").evidence or "[]")) == 1
    assert audits(browser).count("charge A-19") == 1


def test_two_clicks_at_once_do_it_once(once: Once, opened: Opened) -> None:
    record = doubt(once, "A-20")
    browser = opened("look", "decide")
    where = place(record, "not-happened")

    told = browser.client.together(4, where, data=browser.form(where) | REASON, headers=SAME)

    assert [answer.status_code for answer in told] == [303] * 4
    assert sum("done=freed" in answer.headers["location"] for answer in told) == 1
    assert len(json.loads(seen(once, "charge", "A-20").evidence or "[]")) == 1


def test_a_form_that_is_sent_with_other_content_is_refused(once: Once, opened: Opened) -> None:
    first, other = doubt(once, "A-21"), doubt(once, "A-22")
    browser = opened("look", "decide")
    fields = browser.form(place(first, "happened")) | REASON | {"result": "1"}
    assert browser.post(place(first, "happened"), fields).status_code == 303

    assert browser.post(place(first, "happened"), fields | {"result": "2"}).status_code == 409
    assert browser.post(place(other, "happened"), fields | {"stamp": other.stamp}).status_code == 409
    assert seen(once, "charge", "A-22") == other


def test_a_page_that_has_grown_old_changes_nothing_and_shows_what_is_new(once: Once, opened: Opened) -> None:
    """The next attempt looks the same as the first: only the stamp tells that it is another."""
    record = doubt(once, "A-23")
    browser = opened("look", "decide")
    where = place(record, "not-happened")
    old = browser.form(where) | REASON
    once.release("charge", "A-23", by="rui", reason="he was faster")
    later = doubt(once, "A-23")
    assert (later.status, later.attempt) == (record.status, record.attempt)

    answer = browser.post(where, old)

    assert answer.status_code == 409
    assert "has changed since you looked" in answer.text
    assert seen(once, "charge", "A-23") == later
    drawn = Forms(answer.text)
    fields = next(fields for _, fields in drawn.found if "form" in fields)
    assert fields["stamp"] == later.stamp
    assert REASON["reason"] in html.unescape(answer.text), "what was typed is not lost"
    assert "charge A-23" not in audits(browser), "what was refused is no decision"

    assert browser.post(where, fields | REASON).status_code == 303, "looked again, and decided"


def test_what_was_settled_meanwhile_is_not_offered_again(once: Once, opened: Opened) -> None:
    record = doubt(once, "A-24")
    browser = opened("look", "decide")
    old = browser.form(place(record, "happened")) | REASON | {"result": "1"}
    once.resolve("charge", "A-24", Happened("by somebody else"), by="rui", reason="he was faster")

    answer = browser.post(place(record, "happened"), old)

    assert answer.status_code == 409
    assert not [fields for _, fields in Forms(answer.text).found if "form" in fields]
    assert repeated(once, "A-24").value == "by somebody else"


@pytest.mark.parametrize("reason", ["", "short", "       x       "])
def test_a_decision_says_why(browser: Browser, sqlite_once: Once, reason: str) -> None:
    record = doubt(sqlite_once, "A-25")
    fields = browser.form(place(record, "not-happened"))

    answer = browser.post(place(record, "not-happened"), fields | {"reason": reason})

    assert answer.status_code == 400
    assert seen(sqlite_once, "charge", "A-25") == record


@pytest.mark.parametrize("result", ["", "{", "NaN", '"\\ud800"', "1e999", "[" * 100_000, '{"$": "unknown tag"}' * 2])
def test_a_result_that_could_not_be_replayed_is_refused(browser: Browser, sqlite_once: Once, result: str) -> None:
    record = doubt(sqlite_once, "A-26")
    fields = browser.form(place(record, "happened")) | REASON | {"result": result}

    answer = browser.post(place(record, "happened"), fields)

    assert answer.status_code == 400, answer.text
    assert seen(sqlite_once, "charge", "A-26") == record


def test_what_is_settled_is_changed_only_by_those_who_govern_and_who_type_the_key(once: Once, opened: Opened) -> None:
    once.run("charge", key="A-27", call=lambda: "old", unknown="hold")
    record = seen(once, "charge", "A-27")
    where = place(record, "happened")
    deciding = opened("look", "decide")
    assert deciding.get(where, 403)
    browser = opened()
    fields = browser.form(where) | REASON | {"result": '"new"'}

    assert browser.post(where, fields).status_code == 400, "nothing was typed"
    assert browser.post(where, fields | {"typed": "A-28"}).status_code == 400
    doubtful = doubt(once, "A-28")
    mark = deciding.form(place(doubtful, "happened"))["token"]
    assert deciding.post(where, fields | {"typed": "A-27", "token": mark}).status_code == 403
    assert seen(once, "charge", "A-27") == record

    anew = browser.form(where) | REASON | {"result": '"new"', "typed": "A-27"}
    assert browser.post(where, anew).status_code == 303
    assert repeated(once, "A-27").value == "new"


class Shop:
    """A service whose only endpoint breaks off: whether it ordered something, nobody knows."""

    def __init__(self, once: Once) -> None:
        app = Idempotency(
            self._broken, once=once, principal=ANONYMOUS, routes=[Route("POST", "/orders", unknown="hold")]
        )
        transport = httpx.WSGITransport(app)  # type: ignore[arg-type]  # a WSGI app
        self.client = httpx.Client(transport=transport, base_url="http://loja")

    def _broken(self, environ: Any, start_response: Any) -> Any:
        raise ConnectionResetError

    def post(self) -> httpx.Response:
        return self.client.post("/orders", headers={"Idempotency-Key": "k-1"}, json={"item": 1})


def test_a_held_http_request_is_answered_with_the_response_that_was_decided_on(once: Once, opened: Opened) -> None:
    shop = Shop(once)
    with suppress(ConnectionResetError):
        shop.post()
    assert shop.post().status_code == 409
    record = next(each for each in once.find(every_scope=True, operation="POST /orders", newest_first=True))
    browser = opened("look", "decide")
    where = place(record, "happened")
    assert 'name="status"' in browser.get(where)
    fields = browser.form(where) | REASON

    for wrong in (
        {"status": "99", "body": ""},
        {"status": "", "body": "{}"},
        {"status": "201", "body": "", "headers": "set-cookie: a=b"},
        {"status": "201", "body": "", "headers": "no header"},
    ):
        assert browser.post(where, fields | wrong).status_code == 400, str(wrong)[:60]
    assert shop.post().status_code == 409, "it is as unknown as before"

    given = {"status": "201", "body": '{"id": 7}', "headers": "Location: /orders/7"}
    assert browser.post(where, fields | given).status_code == 303
    for _ in range(2):
        again = shop.post()
        assert (again.status_code, again.json(), again.headers["location"]) == (201, {"id": 7}, "/orders/7")
        assert again.headers["idempotent-replayed"] == "true"
    shop.client.close()


ANSWERS = {"yes": Happened({"id": 99}), "no": NotHappened(), "perhaps": CannotTell("503 from the bank")}


@pytest.mark.parametrize(("answer", "told"), [("yes", "adopted"), ("no", "freed"), ("perhaps", "left")])
def test_the_far_side_is_asked_now(once: Once, opened: Opened, answer: str, told: str) -> None:
    def lost(order: str) -> None:
        raise Lost

    pay = once.operation("pay", key=lambda order: order, unknown=lambda _question: ANSWERS[answer])(lost)
    with suppress(Lost, OutcomeUnknown):
        pay("P-1")
    record = seen(once, "pay", "P-1")
    assert record.status is Status.UNKNOWN
    browser = opened("look", "decide")
    fields = browser.form("/unknown", f"{record.key.digest.hex()}/ask")

    answered = browser.post(place(record, "ask"), fields)
    twice = browser.post(place(record, "ask"), fields)

    assert answered.headers["location"].endswith(f"done={told}"), answered.text
    assert twice.headers["location"].endswith("done=again")
    assert len(json.loads(seen(once, "pay", "P-1").evidence or "[]")) == 1, "asked once"
    assert "pay P-1" in audits(browser)
    stale = browser.post(place(record, "ask"), fields | {"form": "another form"})
    assert stale.status_code == 409
    assert seen(once, "pay", "P-1").stamp != record.stamp


def test_private_texts_are_revealed_to_those_who_may_and_that_is_kept(once: Once, opened: Opened) -> None:
    once.run("charge", key="A-30", call=lambda: {"cpf": "123.456.789-09"}, unknown="hold")
    record = seen(once, "charge", "A-30")
    looking = opened("look", "decide", "govern", name="rui")
    assert "123.456" not in looking.get(place(record))
    browser = opened("look", "reveal")
    assert "123.456" not in browser.get(place(record))

    answer = browser.post(place(record, "reveal"), browser.form(place(record), "reveal"))

    assert answer.status_code == 200
    assert "123.456.789-09" in answer.text
    assert "reveal: revealed" in audits(browser)


def test_a_lapsed_lease_is_freed_and_a_held_one_is_not(once: Once, opened: Opened) -> None:
    leases = Leases(once)
    held = leases.acquire("nightly", lease=30)
    record = once.find(operation="lease")[0]
    browser = opened()
    assert "nightly" in browser.get("/leases")
    fields = browser.form(place(record, "not-happened")) | REASON

    assert browser.post(place(record, "not-happened"), fields).status_code in (400, 409)
    leases.release(held)
    if not str(once.url).startswith("redis"):
        assert "nightly" not in browser.get("/leases")
        assert "released" in browser.get("/leases?days=7")
    assert "failed" not in browser.get(place(record)).partition("<h1")[2].partition("</h1>")[0]


def test_an_unused_token_is_cancelled(once: Once, opened: Opened) -> None:
    tokens = Tokens(once, "confirm_ride", unknown="hold")
    issued = tokens.issue("passenger-7", {"ride": 1})
    record = once.store.read(issued.key).current
    assert record is not None
    browser = opened()
    page = browser.get("/tokens?owner=passenger-7")
    assert "unused" in page
    assert issued.token not in page

    done = browser.done(place(record, "cancel"), browser.form(place(record, "cancel")) | REASON)

    assert "no longer be used" in done
    with pytest.raises(TokenCancelled):
        tokens.redeem(issued.token, "passenger-7", lambda: "used")
    assert browser.post(place(record, "cancel"), browser.form(place(record, "cancel")) | REASON).status_code == 400


def test_the_decision_and_its_audit_are_one_transaction_where_the_store_joins(
    browser: Browser, sqlite_once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies before the audit is written has decided nothing."""
    record = doubt(sqlite_once, "A-31")
    where = place(record, "not-happened")
    fields = browser.form(where) | REASON
    assert "one transaction" in browser.get("/decisions")

    class Died(BaseException):
        pass

    def die(*_: object) -> str:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(Decisions, "_stamp", die)
        with pytest.raises(Died):
            browser.post(where, fields)
    assert seen(sqlite_once, "charge", "A-31") == record
    assert not _kept(sqlite_once)

    assert browser.post(where, fields).status_code == 303, "the same form is carried out once the process is back"
    assert [each.status for each in _kept(sqlite_once)] == [Status.SUCCESS]


def _kept(once: Once) -> list[Record]:
    return [record for record in once.find(every_scope=True, operation=OPERATION) if record.key.scope == SCOPE]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_an_engine_that_is_awaited_has_a_console_as_well(
    kind: str, request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    url = f"sqlite:///{tmp_path}/a.db?journal=delete" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    scope = f"loja-{secrets.token_hex(4)}"

    async def story() -> None:
        async def ask(_question: object) -> Happened:
            return Happened("the bank has it")

        async with AsyncOnce(url, scope=scope) as once:
            await once.migrate()

            @once.operation("pay", key=lambda order: order, unknown=ask)
            async def pay(order: str) -> str:
                raise Lost

            with suppress(Lost, OutcomeUnknown):
                await pay("1")
            app = console(once, authorize=lambda _: Who("ana", EVERYTHING), panels=[])
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                record = await once.get("pay", "1")
                assert record is not None
                page = await client.get(place(record))
                fields = next(form for action, form in Forms(page.text).found if action.endswith("/ask"))
                answer = await client.post(place(record, "ask"), data=fields, headers=SAME)
                assert answer.headers["location"].endswith("done=adopted"), answer.text
            assert await pay("1") == "the bank has it", "whoever repeats it gets what the far side said"
            app.close()

    asyncio.run(story())
