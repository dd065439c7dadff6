"""Who may come in, what each may do, and that no other site can act in somebody's name (X.04)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.browser import SAME, Browser, Forms
from tests.console.conftest import doubt, place, seen
from umavez import ConfigurationError, Once, console
from umavez.console import EVERYTHING, Who, loopback, people
from umavez.console.app import PAGES
from umavez.console.people import VARIABLE, Users, entry

CLOSED = (
    "/",
    "/unknown",
    "/records",
    "/messages",
    "/leases",
    "/tokens",
    "/sequences",
    "/decisions",
    "/decisions.csv",
    "/pulse",
)


def test_importing_the_engine_loads_no_web_framework() -> None:
    program = (
        "import sys, umavez; umavez.console; print([n for n in ('starlette', 'jinja2', 'anyio') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_a_console_that_was_told_nobody_is_closed(sqlite_once: Once) -> None:
    browser = Browser(console(sqlite_once, panels=[]))

    for path in CLOSED:
        assert "closed" in browser.get(path, 403)
    assert browser.post("/in", {"name": "ana"}).status_code == 403


def test_loopback_alone_is_open_as_local(sqlite_once: Once) -> None:
    app = console(sqlite_once, authorize=loopback, panels=[])

    assert "local" in Browser(app).get("/")
    for address in ("10.0.0.7", "203.0.113.5", "2001:db8::1", "testclient"):
        Browser(app, address).get("/", 403)
    for name, value in (("x-forwarded-for", "127.0.0.1"), ("forwarded", "for=1"), ("host", "evil.example:8090")):
        behind = Browser(app)
        behind.client.headers[name] = value
        behind.get("/", 403)
    for address in ("::1", "::ffff:127.0.0.1", "127.9.9.9"):
        Browser(app, address).get("/")


def test_whoever_is_not_known_to_the_application_stays_outside(sqlite_once: Once) -> None:
    async def nobody(_: object) -> Who | None:
        return None

    browser = Browser(console(sqlite_once, authorize=nobody, panels=[]))
    for path in CLOSED:
        assert "may not come in" in browser.get(path, 403)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.method} {page.path}")
def test_every_page_asks_for_its_role(sqlite_once: Once, page: object) -> None:
    record = doubt(sqlite_once, "A-17")
    path = page.path.replace("{digest}", record.key.digest.hex())  # type: ignore[attr-defined]
    needed, method = page.may, page.method  # type: ignore[attr-defined]
    app = console(sqlite_once, authorize=lambda _: Who("rui", EVERYTHING - {needed}), panels=[])
    browser = Browser(app)

    answer = browser.client.get(path) if method == "GET" else browser.post(path, {})

    assert answer.status_code == 403
    assert f"role {needed}" in answer.text
    assert seen(sqlite_once, "charge", "A-17") == record
    app.close()


def test_deciding_is_offered_only_to_those_who_may(sqlite_once: Once) -> None:
    record = doubt(sqlite_once, "A-17")
    app = console(sqlite_once, authorize=lambda _: Who("rui"), panels=[])

    for path in ("/unknown", place(record)):
        links = Forms(Browser(app).get(path)).links
        assert not [link for link in links if link.endswith("happened")]
    app.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1.evil.example"},
        {"x-nothing": "said"},
        {"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1"},
    ],
    ids=lambda headers: "-".join(headers.values()),
)
def test_a_form_of_another_site_changes_nothing(browser: Browser, sqlite_once: Once, headers: dict[str, str]) -> None:
    record = doubt(sqlite_once, "A-17")
    fields = browser.form(place(record, "not-happened")) | {"reason": "the bank has nothing"}

    assert browser.post(place(record, "not-happened"), fields, **headers).status_code == 403
    assert seen(sqlite_once, "charge", "A-17") == record


FORMS = [page for page in PAGES if page.method == "POST"]


@pytest.mark.parametrize("page", FORMS, ids=lambda page: page.path)
@pytest.mark.parametrize("site", [{"sec-fetch-site": "cross-site"}, {"origin": "http://evil.example"}], ids=str)
def test_no_form_at_all_is_taken_from_another_site(
    browser: Browser, sqlite_once: Once, page: object, site: dict[str, str]
) -> None:
    record = doubt(sqlite_once, "A-17")
    token = browser.form(place(record, "not-happened"))["token"]
    path = page.path.replace("{digest}", record.key.digest.hex()).replace("{name}", "x")  # type: ignore[attr-defined]

    answer = browser.post(path, {"token": token, "form": "f", "stamp": record.stamp, "reason": "long enough"}, **site)

    assert answer.status_code == 403
    assert "nothing was done" in answer.text
    assert seen(sqlite_once, "charge", "A-17") == record


def test_a_browser_that_only_says_its_origin_is_let_in(browser: Browser, sqlite_once: Once) -> None:
    record = doubt(sqlite_once, "A-17")
    fields = browser.form(place(record, "not-happened")) | {"reason": "the bank has nothing"}

    for origin in ("http://[", "null", "", "http://127.0.0.1.evil.example", "//127.0.0.1"):
        assert browser.post(place(record, "not-happened"), fields, origin=origin).status_code == 403, origin
    assert browser.post(place(record, "not-happened"), fields, origin="http://127.0.0.1").status_code == 303


def test_a_form_needs_the_mark_of_its_own_browser(browser: Browser, sqlite_once: Once) -> None:
    record = doubt(sqlite_once, "A-17")
    fields = browser.form(place(record, "not-happened")) | {"reason": "the bank has nothing"}

    for token in ("", "x", fields["token"][:-1], fields["token"] + "é"):
        answer = browser.post(place(record, "not-happened"), fields | {"token": token})
        assert answer.status_code == 403, token
        assert "cookie" in answer.text
    browser.client.cookies.clear()
    assert browser.post(place(record, "not-happened"), fields).status_code == 403
    assert seen(sqlite_once, "charge", "A-17") == record


def test_nothing_is_changed_by_getting_a_page(browser: Browser, sqlite_once: Once) -> None:
    record = doubt(sqlite_once, "A-17")

    for page in PAGES:
        browser.client.get(page.path.replace("{digest}", record.key.digest.hex()))
    assert browser.client.get(place(record, "ask")).status_code == 405
    assert seen(sqlite_once, "charge", "A-17") == record


def test_every_answer_carries_the_headers(browser: Browser, sqlite_once: Once) -> None:
    record = doubt(sqlite_once, "A-17")
    for path in (
        *CLOSED,
        place(record),
        place(record, "happened"),
        "/records/zz",
        "/static/console.css",
        "/static/nothing",
        "/nowhere",
        "/in",
        "/records?q=%22",
    ):
        headers = browser.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    cookie = browser.client.get("/", headers={"cookie": ""}).headers.get("set-cookie", "")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


def test_no_page_holds_script_or_style_of_its_own(browser: Browser, sqlite_once: Once) -> None:
    record = doubt(sqlite_once, "A-17")
    for path in (*CLOSED[:-2], place(record), place(record, "happened")):
        text = browser.get(path)
        assert "style=" not in text
        assert " on" not in {tag for tag in text.split('="') if tag.endswith(" on")}
        assert text.count("<script") == text.count('<script src="/static/console.js" defer></script>') == 1
        assert "<style" not in text
    source = Path(console.__code__.co_filename).parent
    assert (source / "static/console.css").stat().st_size <= 8_192


def test_a_form_that_is_too_large_or_no_form_is_refused(browser: Browser, sqlite_once: Once) -> None:
    record = doubt(sqlite_once, "A-17")
    where = place(record, "not-happened")

    big = browser.post(where, {"body": "x" * 4_000_001})
    assert big.status_code == 413
    assert browser.client.post(where, json={"a": 1}, headers=SAME).status_code == 415
    many = "&".join(f"a{number}=1" for number in range(50))
    kind = {"content-type": "application/x-www-form-urlencoded", **SAME}
    assert browser.client.post(where, content=many, headers=kind).status_code == 400
    assert browser.client.post(where, content=b"\xff\xfe=1", headers=kind).status_code in (400, 403)
    assert seen(sqlite_once, "charge", "A-17") == record


def signing(sqlite_once: Once, monkeypatch: pytest.MonkeyPatch, roles: str = "look+decide") -> Browser:
    monkeypatch.setenv(
        VARIABLE, f"{entry('ana', 'a long password', roles)}\n{entry('rui', 'another password', 'look')}"
    )
    return Browser(console(sqlite_once, panels=[]), "203.0.113.5")


def test_people_sign_in_and_out(sqlite_once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = signing(sqlite_once, monkeypatch)
    page = Forms(browser.get("/unknown", 401))
    fields = next(fields for action, fields in page.found if action == "/in")
    assert fields["next"] == "/unknown"

    wrong = browser.post("/in", fields | {"name": "ana", "password": "a wrong password"})
    assert wrong.status_code == 401
    right = browser.post("/in", fields | {"name": "ana", "password": "a long password"})
    assert (right.status_code, right.headers["location"]) == (303, "/unknown")
    assert "ana" in browser.get("/unknown")

    browser.post("/out", {"token": fields["token"]})
    browser.get("/unknown", 401)


def test_signing_in_leads_on_to_the_search_that_a_link_named(
    sqlite_once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = signing(sqlite_once, monkeypatch)
    link = "/records?q=status%3Aunknown%20key%3A%22%3Cb%3E%22&days=30"
    fields = next(fields for action, fields in Forms(browser.get(link, 401)).found if action == "/in")
    answer = browser.post("/in", fields | {"name": "ana", "password": "a long password"})
    assert (answer.status_code, answer.headers["location"]) == (303, link)
    signed_out = signing(sqlite_once, monkeypatch)
    for nowhere in ("/out", "/nowhere"):
        fields = next(fields for action, fields in Forms(signed_out.get(nowhere, 401)).found if action == "/in")
        assert fields["next"] == "", "there is nothing to go on to"


@pytest.mark.parametrize("next_", ["//evil.example", "https://evil.example", "/\\evil.example", "/a//evil.example"])
def test_signing_in_leads_nowhere_else(sqlite_once: Once, monkeypatch: pytest.MonkeyPatch, next_: str) -> None:
    browser = signing(sqlite_once, monkeypatch)
    fields = next(fields for action, fields in Forms(browser.get("/", 401)).found if action == "/in")

    answer = browser.post("/in", fields | {"next": next_, "name": "ana", "password": "a long password"})

    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_session_ends_and_cannot_be_made_up() -> None:
    users = Users(entry("ana", "a long password", "look"))
    others = Users(entry("ana", "a long password", "look"))
    cookie = users.session("ana", 1_000.0)

    assert users.holder(cookie, 1_001.0) == Who("ana")
    assert users.holder(cookie, 1_000.0 + 13 * 3600) is None
    assert others.holder(cookie, 1_001.0) is None, "another secret"
    for bad in ("", ".", "a.b", cookie[:-4], cookie.replace(".", ".."), "é.é", cookie[4:]):
        assert users.holder(bad, 1_001.0) is None
    assert users.holder(users.session("nobody", 1_000.0), 1_001.0) is None


def test_wrong_passwords_are_bounded(sqlite_once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "MOST_FAILURES", 3)
    browser = signing(sqlite_once, monkeypatch)
    fields = next(fields for action, fields in Forms(browser.get("/", 401)).found if action == "/in")

    told = [
        browser.post("/in", fields | {"name": name, "password": "x"}).status_code
        for name in ("ana", "eva", "ana", "ana")
    ]

    assert told == [401, 401, 401, 429]
    right = browser.post("/in", fields | {"name": "ana", "password": "a long password"})
    assert right.status_code == 429


def test_a_crowd_that_signs_in_is_asked_to_wait(sqlite_once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds no thread is told so, as on every page: no error of ours for somebody's sixty guesses."""
    browser = signing(sqlite_once, monkeypatch)
    fields = next(fields for action, fields in Forms(browser.get("/", 401)).found if action == "/in")

    told = browser.client.together(
        60, "/in", data=fields | {"name": "ana", "password": "a wrong password"}, headers=SAME
    )

    assert {answer.status_code for answer in told} == {401, 503}


@pytest.mark.parametrize("text", ["ana", "ana:look:x:y", "ana:fly:AAAA:AAAA", "a b:look:AAAA:AAAA"])
def test_an_entry_that_cannot_be_read_is_said_so(text: str) -> None:
    with pytest.raises(ConfigurationError, match="console-user"):
        Users(text)


def test_over_tls_cookies_are_the_hosts_own(sqlite_once: Once) -> None:
    app = console(sqlite_once, authorize=lambda _: Who("ana"), panels=[])
    browser = Browser(app)
    answer = browser.client.get("https://127.0.0.1/")

    assert "__Host-umavez_form=" in answer.headers["set-cookie"]
    assert "Secure" in answer.headers["set-cookie"]
    app.close()
