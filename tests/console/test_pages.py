"""Pages: what they show, in whose language, within which bounds (X.04, S3.08)."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser import Browser, Forms
from tests.console.conftest import Lost, doubt, place, seen
from umavez import Once, Record, Status, StoreUnavailable, console
from umavez.console import EVERYTHING, Link, Tile, Who, loopback
from umavez.console import app as app_module
from umavez.console import books as books_module
from umavez.console.books import Books, Count, TooSlow
from umavez.console.charts.standing import TITLES
from umavez.console.history import Moment
from umavez.console.looks import counted
from umavez.console.pages.inbox import CAUSES
from umavez.console.pages.record import NOTICES
from umavez.console.pages.records import DAY
from umavez.console.standing import MEANINGS
from umavez.console.words import grouped, portuguese
from umavez.core.key import Key
from umavez.core.record import Draft, Query
from umavez.core.telling import history
from umavez.core.telling.events import Process
from umavez.core.telling.origin import originated, whence
from umavez.engine.stamps import STAMPS
from umavez.errors import Crowded
from umavez.messaging import Inbox, Message, Outbox
from umavez.migration import migrate
from umavez.sql.connection import Sql
from umavez.sql.database import writing
from umavez.sql.flow import Write, carry
from umavez.stores import Chronicle
from umavez.stores.memory import MemoryStore
from umavez.testing import ManualClock

SOURCE = Path(app_module.__file__ or "").parent


def test_every_sentence_of_ours_has_its_portuguese() -> None:
    said: set[str] = set()
    for page in (SOURCE / "templates").glob("*.html"):
        found = re.findall(r"""\bt\(\s*(?:"([^"]*)"|'([^']*)')""", page.read_text())
        said |= {one or other for one, other in found}
    for module in SOURCE.rglob("*.py"):
        text = module.read_text()
        said |= set(re.findall(r'\b(?:visit\.t|say)\(\s*"([^"]*)"', text))
        said |= set(re.findall(r'\bNumber\("([^"]*)"', text))
        said |= set(re.findall(r'raise TooSlow\("([^"]*)"', text))
        said |= set(re.findall(r'raise Refused\(\s*"([^"]*)"', text)) - {"Nobody is signed in."}
    said |= {*NOTICES.values(), *MEANINGS.values(), "How long attempts took, by the hour"}
    said |= {text for pair in CAUSES for text in pair}
    said |= {title for titles in TITLES.values() for title in titles[:2]}
    said |= set(re.findall(r'"([a-z ]+)"', (Path(history.__file__).read_text()).partition("class Moment")[0]))
    said -= {"lost", "mismatched"}  # kinds, for which there are other words
    missing = {sentence for sentence in said if sentence} - set(portuguese())

    assert len(said) > 150
    assert missing <= {"A form is application/x-www-form-urlencoded.", "The form is too large.",
                       "The form did not arrive in time.", "The form cannot be read."}  # fmt: skip


def test_the_places_in_a_sentence_are_those_of_its_translation() -> None:
    for english, text in portuguese().items():
        assert re.findall(r"\{\w+\}", english) == re.findall(r"\{\w+\}", text), english


def test_the_reader_chooses_the_language_and_the_light(browser: Browser) -> None:
    assert "Overview" in browser.get("/")
    browser.client.headers["accept-language"] = "fr, pt-BR;q=0.9, en;q=0.8"
    assert "Visão geral" in browser.get("/")
    assert "Overview" in browser.get("/?lang=en")
    assert "Overview" in browser.get("/unknown"), "what was chosen is kept"
    assert 'data-theme="dark"' in browser.get("/?theme=dark")
    assert 'data-theme="dark"' in browser.get("/records")
    assert 'data-theme="' not in browser.get("/?theme=pink").replace('data-theme="dark"', "")


@pytest.fixture
def quick() -> Iterator[Once]:
    """An engine in memory, for many records."""
    with Once("memory:", scope="loja") as once:
        yield once


def test_pages_go_on_where_the_last_ended(quick: Once) -> None:
    for number in range(120):
        quick.run("charge", key=f"k-{number:03}", call=lambda: 1, unknown="hold")
    app = console(quick, authorize=loopback, panels=[])
    browser = Browser(app)
    met: list[str] = []
    path = "/records?q=op%3Acharge"
    for _ in range(3):
        page = Forms(browser.get(path))
        met += re.findall(r"k-\d{3}", " ".join(page.text))
        path = "/records" + next((link for link in page.links if re.search(r"after=[0-9a-f-]+&days=1$", link)), "")

    assert len(met) == 120
    assert sorted(met) == [f"k-{number:03}" for number in range(120)]
    assert path == "/records"
    app.close()


def test_a_word_finds_a_key_a_digest_and_a_process(browser: Browser, sqlite_once: Once) -> None:
    sqlite_once.run("charge", key="A-17", call=lambda: 1, unknown="hold", process_instance="p-9")
    sqlite_once.run("refund", key="A-17", call=lambda: 1, unknown="hold")
    record = seen(sqlite_once, "charge", "A-17")
    digest = record.key.digest.hex()

    for word in (digest[:12], digest[:8], digest, "p-9"):
        answer = browser.client.get(f"/records?q={word}")
        assert (answer.status_code, answer.headers["location"]) == (303, place(record)), word
    both = browser.get("/records?q=A-17")
    assert "charge" in both
    assert "refund" in both
    assert "Nothing matches" in browser.get("/records?q=A-18")
    assert "under 2 known pairs" in browser.get("/records?q=key%3AA-17")


def test_a_search_that_the_store_cannot_filter_looks_through_a_bounded_number(
    quick: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books_module, "LOOKED_AT", 500)
    for number in range(600):
        quick.store.swap(None, _claimed(quick, f"k-{number}"))
    app = console(quick, authorize=loopback, panels=[])
    browser = Browser(app)

    page = browser.get("/records?q=attempt%3A%3E1")

    assert "Looked through 500 records" in page
    assert "after=" in page, "the rest is one click away"
    app.close()


def test_a_search_that_no_index_leads_is_kept_to_a_window_that_can_be_widened() -> None:
    clock = ManualClock()
    with Once(MemoryStore(clock), scope="loja") as once:
        for key in ("old", "young"):
            once.run("charge", key=key, call=lambda: 1, unknown="hold")
            clock.advance(2 * 86_400 if key == "old" else 60)
        app = console(once, authorize=loopback, panels=[])
        browser = Browser(app)

        page = browser.get("/records?q=op%3Acharge")
        assert ("young" in page, ">old<" in page) == (True, False)
        assert "Begun within 24\N{NO-BREAK SPACE}h" in page
        wider = next(link for link in Forms(page).links if "days=30" in link and "lang" not in link)
        assert ">old<" in browser.get(f"/records{wider}")
        for led in ("op%3Acharge+age%3A%3E1d", "key%3Aold", ""):
            assert ">old<" in browser.get(f"/records?q={led}"), led
        app.close()


def _claimed(once: Once, key: str) -> Any:
    from umavez.core.record import Draft, Settled, Status

    return Draft(
        Key(once.scope, "charge", key), f"s-{key}", Status.SUCCESS, False, settled=Settled(True, "1"), keep=10**9
    )


def test_numbers_are_counted_up_to_a_bound(sqlite_once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        doubt(sqlite_once, f"k-{number}")
    books = Books(sqlite_once, None)
    assert books.count("unknown") == Count(5, False)
    monkeypatch.setattr(books_module, "MOST_COUNTED", 3)
    assert books.count("unknown") == Count(3, True)
    books.tables = None
    monkeypatch.setattr(books_module, "MOST_FOUND", 4)
    assert books.count("unknown") == Count(4, True)
    assert counted("en", Count(10_000, True)) == "10,000+"
    assert counted("pt", Count(10_000, True)) == "10.000+"
    assert counted("en", Count(None)) == "—"
    books.close()


def test_busy_neighbours_are_passed_over_only_so_far(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    once.run("rare", key="old", call=lambda: 1, unknown="hold")
    monkeypatch.setattr(books_module, "NEWEST_COUNTED", 3)
    for number in range(5):
        doubt(once, f"k-{number}", operation="busy")
        with suppress(Lost):
            once.run("busy", key=f"f-{number}", call=_lost, unknown="hold", free=(Lost,))
    app = console(once, authorize=loopback, panels=[])
    browser = Browser(app)
    if app.books.tables is None:
        assert app.books.reach(5) == 5
    else:
        assert app.books.reach(DAY) < 60_000, "the newest three are seconds old"
        assert app.books.count("failed") == Count(2, True), "of the newest three, and there are more"
        found = browser.get("/records?q=op%3Arare")
        assert "Begun within" in found
        assert "days=1" in found, "a click goes on to the day"
        assert "old" in browser.get("/records?q=op%3Arare&days=1")
    app.close()


def _lost() -> None:
    raise Lost("refused")


def test_no_page_counts_a_whole_table() -> None:
    """count(*) stands in one place, around a LIMIT."""
    texts = {path.name: path.read_text().casefold() for path in SOURCE.glob("*.py")}
    assert [name for name, text in texts.items() if "count(*)" in text] == ["books.py"]
    assert (
        texts["books.py"].count("count(*)")
        == texts["books.py"].count("count(*) from (select 1 from {table} where")
        == 1
    )
    assert not [name for name, text in texts.items() if ".counts()" in text]


@pytest.mark.postgres
def test_questions_to_a_server_end_in_time(postgres_url: str) -> None:
    with Once(postgres_url, scope="loja") as once:
        once.migrate()
        app = console(once, authorize=loopback, panels=[])
        with pytest.raises(StoreUnavailable):
            app.books.table(lambda _: _sleeping())
        assert "timeout=2" in app.books.tables
        app.close()


def _sleeping() -> Any:
    from umavez.sql.flow import Ask

    yield Ask("SELECT pg_sleep(30)")


def test_a_store_that_does_not_answer_is_said_so(
    browser: Browser, sqlite_once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise StoreUnavailable("The database is away; try again.")

    monkeypatch.setattr(sqlite_once.store, "find", silent)

    assert "The database is away" in browser.get("/records", 503)


def test_what_takes_too_long_is_said_in_the_readers_language_and_a_decision_may_still_be_done(
    browser: Browser, sqlite_once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = place(doubt(sqlite_once, "A-17"), "not-happened")
    form = browser.form(where) | {"reason": "the bank has none of it"}

    async def late(*_: object) -> None:
        raise TooSlow("The store did not answer in time; narrow the search.")

    async def crowded(*_: object) -> None:
        raise Crowded("32 calls wait for a thread already; try again later.")

    monkeypatch.setattr(Books, "look", late)
    assert "narrow the search" in browser.get("/records", 503)
    assert "restrinja a busca" in browser.get("/records?lang=pt", 503)
    answer = browser.post(where, form)
    assert (answer.status_code, "pode ser feito mesmo assim" in answer.text) == (503, True)
    monkeypatch.setattr(Books, "look", crowded)
    assert "nada foi feito" in browser.post(where, form).text


def test_the_inbox_is_grouped_and_the_oldest_comes_first(browser: Browser, sqlite_once: Once) -> None:
    for key, error in (("1", "503"), ("2", "reset"), ("3", "503")):
        doubt(sqlite_once, key, error=error)

    page = Forms(browser.get("/unknown"))
    text = " ".join(" ".join(page.text).split())

    assert text.index("Lost: 503") < text.index("Lost: reset")
    keys = [link.rpartition("/")[2] for link in page.links if re.fullmatch(r"/records/[0-9a-f]{64}", link)]
    wanted = [Key("loja", "charge", key).digest.hex() for key in ("1", "3", "2")]
    assert keys == wanted


def test_a_timeline_tells_what_is_known_and_takes_other_histories(sqlite_once: Once) -> None:
    doubt(sqlite_once, "1")
    sqlite_once.release("charge", "1", by="ana", reason="the bank has nothing")
    record = seen(sqlite_once, "charge", "1")

    class Events:
        def moments(self, record: Record, now: int) -> list[Moment]:
            return [Moment(record.created_at - 90_000, "told elsewhere", "web-3/412")]

    app = console(sqlite_once, authorize=loopback, panels=[])
    app.histories.append(Events())
    text = " ".join("".join(Forms(Browser(app).get(place(record))).text).split())

    order = [text.index(word) for word in ("told elsewhere", "began", "the bank has nothing")]
    assert order == sorted(order)
    assert "90 s later" in text
    app.close()


def _announced(once: Once) -> int:
    """When this process was last announced in the store; 0 if never."""
    assert isinstance(once.store, Chronicle)
    return next((one.seen_at for one in once.store.processes(1000) if one.prefix == STAMPS.prefix), 0)


def test_a_timeline_names_who_held_the_key_and_who_came_too_late(once: Once) -> None:
    before = _announced(once)  # by an engine of an earlier test in this process
    with once.attempt("charge", key="1", unknown="hold", lease=0.3) as held:
        held.checkpoint("half")
        for _ in range(1000):
            if _announced(once) > before:
                break
            time.sleep(0.01)
        with suppress(Lost), once.attempt("charge", key="2", unknown="rerun") as failing:
            failing.check()
            raise Lost("no answer")
    record = seen(once, "charge", "2")
    app = console(once, authorize=loopback, panels=[])
    browser = Browser(app)
    text = " ".join("".join(Forms(browser.get(place(record))).text).split())
    processes = " ".join("".join(Forms(browser.get("/processes")).text).split())

    me = f"{socket.gethostname()}/{os.getpid()}"
    assert f"failed {me} attempt 1, fence {record.fence}" in text
    assert "Lost: no answer" in text
    assert f"checkpoint {me}" in " ".join("".join(Forms(browser.get(place(seen(once, "charge", "1")))).text).split())
    assert f"alive {me}" in processes
    app.close()


def test_a_key_says_which_process_holds_it_and_where_its_request_came_from(once: Once) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    key = Key(once.scope, "POST /pagamentos", "1")
    origin = originated("feed-1", whence(f"00-{trace}-00f067aa0ba902b7-01", "req-7f") or "")
    once.store.swap(None, Draft(key, "feed-1", Status.PENDING, True, lease=60_000, origin=origin))
    record = seen(once, key.operation, key.value)
    app = console(once, authorize=loopback, panels=[])
    browser = Browser(app)

    nameless = " ".join("".join(Forms(browser.get(place(record))).text).split())
    assert isinstance(once.store, Chronicle)
    once.store.announce(Process("feed", "web-3", 412, "loja", "0.1.0", 1000))
    named = " ".join("".join(Forms(browser.get(place(record))).text).split())

    assert "Holderfeed-1: a process that was not announced here" in nameless
    assert "Holderweb-3/412 (loja, umavez 0.1.0), seen 0 s ago" in named
    for text in (nameless, named):
        assert "Requestreq-7f" in text
        assert f"Trace{trace}" in text
    assert f"began web-3/412 trace {trace}req-7f" in named, "the timeline tells it, too"
    app.close()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_key_shows_its_messages_and_a_message_what_caused_it(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/m.db?journal=delete" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    migrate(url)
    scope, name = f"loja-{secrets.token_hex(4)}", f"m-{secrets.token_hex(4)}"
    message = Message("paid", "{}", id=name)
    with Once(url, scope=scope) as once:
        with writing(url, "messages") as connection, once.joined(connection, "charge", key="1") as attempt:
            Outbox().append(connection, message)
            attempt.succeed(1)
        with writing(url, "messages") as connection:
            sql = Sql(connection)
            carry(_asked(f"INSERT INTO umavez_subscriptions VALUES ('paid', '{scope}')"), sql)
            carry(_asked(f"UPDATE umavez_outbox SET state = 'DEAD', done_at = 9 WHERE id = '{name}'"), sql)
        with writing(url, "messages") as connection:
            Inbox(once, scope).handle(connection, message, lambda _: None)
        app = console(once, authorize=loopback, panels=[])
        browser = Browser(app)
        cause, handling = Key(scope, "charge", "1").digest.hex(), Key(scope, "paid", name).digest.hex()

        timeline = Forms(browser.get(f"/records/{cause}"))
        text = " ".join("".join(timeline.text).split())
        assert f"message written {name}" in text
        assert f"message dead {name}" in text
        assert f"/message?id={name}" in timeline.links
        shown = Forms(browser.get(f"/message?id={name}"))
        assert f"/records/{cause}" in shown.links, "what caused it"
        assert f"/records/{handling}" in shown.links, "who handled it"
        handled = Forms(browser.get(f"/records/{handling}"))
        assert f"/records/{cause}" in handled.links, "from the effect back to its cause"
        assert f"/message?id={name}" in handled.links
        app.close()


def _asked(text: str) -> Any:
    yield Write(text, ())


def test_a_holder_that_is_gone_is_a_process_that_holds_claims(sqlite_once: Once) -> None:
    key = Key(sqlite_once.scope, "charge", "gone")
    sqlite_once.store.swap(None, Draft(key, "feed-1", Status.PENDING, True, lease=0))
    app = console(sqlite_once, authorize=loopback, panels=[])
    text = " ".join("".join(Forms(Browser(app).get("/processes")).text).split())

    assert "not announced feed 1 1" in text
    assert "gone" in Browser(app).get("/records?q=status%3Alapsed")
    app.close()


class Panel:
    """A small system."""

    name, page = "Loja", "/loja"

    def tile(self) -> Tile:
        return Tile("Loja", (("pedidos", "7"),), "/loja")

    def find(self, word: str) -> list[Link]:
        return [Link("pedido 7", "/loja/7")] if word == "pedido-7" else []

    def links(self, record: Record) -> list[Link]:
        return [Link("o pedido", f"/loja/{record.key.value}")]


class BrokenPanel(Panel):
    name, page = "Quebrado", None

    def tile(self) -> Tile:
        raise StoreUnavailable("away")

    find = links = tile  # type: ignore[assignment]


def test_systems_add_tiles_links_and_a_place_in_the_navigation(sqlite_once: Once) -> None:
    record = doubt(sqlite_once, "A-1")
    app = console(sqlite_once, authorize=loopback, panels=[Panel(), BrokenPanel()])
    browser = Browser(app)

    overview = browser.get("/")
    assert "pedidos" in overview
    assert 'href="/loja"' in overview
    assert "Quebrado did not answer" in overview
    assert 'href="/loja/7"' in browser.get("/records?q=pedido-7")
    assert 'href="/loja/A-1"' in browser.get(place(record))
    app.close()


def test_dead_messages_are_retried_and_given_up_once(sqlite_once: Once, browser: Browser) -> None:
    url = str(sqlite_once.url)
    with writing(url, "messages") as connection:
        for topic in ("a", "b"):
            Outbox().append(connection, Message(topic, "{}"))
        connection.execute("UPDATE umavez_outbox SET state = 'DEAD', error = 'refused', id = 'm-' || topic")
    assert "m-a" in browser.get("/messages?state=dead")
    assert "/message?id=m-a" in Forms(browser.get("/records?q=m-a")).links, "a message is found by its id"
    retry = browser.form("/message?id=m-a", "retry?id=m-a")

    first, second = (browser.post("/message/retry?id=m-a", retry) for _ in range(2))
    assert ["done=waiting" in first.headers["location"], "done=again" in second.headers["location"]] == [True, True]
    assert browser.post("/message/retry?id=m-a", retry | {"form": "another"}).status_code == 409
    with writing(url, "messages") as connection:
        connection.execute("UPDATE umavez_outbox SET state = 'DEAD', attempts = 9 WHERE id = 'm-a'")
    old = browser.post("/message/retry?id=m-a", retry | {"form": "a third"})
    assert old.status_code == 409, "dead again, and not as the page showed it"
    with writing(url, "messages") as connection:
        connection.execute("UPDATE umavez_outbox SET state = 'WAITING' WHERE id = 'm-a' AND attempts = 9")
    give_up = browser.form("/message/discard?id=m-b") | {"reason": "sent by hand instead"}
    assert browser.post("/message/discard?id=m-b", give_up | {"reason": "no"}).status_code == 400
    assert browser.post("/message/discard?id=m-b", give_up).status_code == 303
    with writing(url, "messages") as connection:
        rows = connection.execute("SELECT id, state, error FROM umavez_outbox ORDER BY id").fetchall()
    assert rows == [("m-a", "WAITING", "refused"), ("m-b", "DISCARDED", "Discarded by local: sent by hand instead")]
    story = " ".join("".join(Forms(browser.get("/decisions")).text).split())
    assert "retry: waiting" in story
    assert "sent by hand instead" in story


def test_the_pulse_tells_the_script_that_something_changed(sqlite_once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    app = console(sqlite_once, authorize=loopback, panels=[])
    browser = Browser(app)
    before = json.loads(browser.get("/pulse"))["mark"]
    doubt(sqlite_once, "A-1")
    assert json.loads(browser.get("/pulse"))["mark"] == before, "asked once for all who look"
    app.books._kept.clear()

    assert json.loads(browser.get("/pulse"))["mark"] != before
    app.close()


def test_what_is_not_there_is_said_so(browser: Browser) -> None:
    assert "There is no such record." in browser.get(f"/records/{'0' * 64}", 404)
    assert "Não existe esse registro." in browser.get(f"/records/{'0' * 64}?lang=pt", 404)
    browser.get("/?lang=en")
    browser.get("/records/zz", 404)
    assert "<h1>Not found</h1>" in browser.get("/message?id=nobody", 404)
    for nowhere in ("/nowhere", "/records/x/y", "/static/nothing"):
        text = browser.get(nowhere, 404)
        assert "There is no such page." in text
        assert 'href="/">Back' in text
    refused = browser.client.get("/in")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert "This address takes no such request." in refused.text
    for name in ("/records/%00", "/records/a%00", "/bulk/%00", f"/bulk/{'x' * 300}"):
        browser.get(name, 404)
    assert "month" in browser.get("/decisions?month=1999-13")
    for days in ("9" * 5000, "\N{SUPERSCRIPT TWO}", "-1", "1e9", ""):
        browser.get(f"/leases?days={days}")


def test_a_store_without_tables_has_no_messages() -> None:
    with Once("memory:", scope="loja") as once:
        app = console(once, authorize=lambda _: Who("ana", EVERYTHING))
        browser = Browser(app)
        assert "keeps no tables" in browser.get("/messages", 404)
        assert "cannot join" in browser.get("/decisions")
        app.close()


@pytest.mark.redis
def test_redis_is_asked_for_nothing_that_would_read_all_records(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Once(redis_url, scope="loja-redis") as once:
        record = doubt(once, "A-1")
        app = console(once, authorize=loopback, panels=[])
        store, asked = app.books.engine.store, list[Query]()
        find = store.find

        def noted(query: Query) -> list[Record]:
            asked.append(query)
            return find(query)

        monkeypatch.setattr(store, "find", noted)
        browser = Browser(app)
        digest = record.key.digest.hex()
        for path in ("/", "/unknown", "/leases", "/tokens?owner=a", "/decisions", "/pulse", place(record)):
            browser.get(path)
        assert "A-1" in browser.get("/records?q=status%3Aunknown")
        for word in (digest, digest[:12], "A-1", "p-9"):
            assert browser.client.get(f"/records?q={word}").status_code in (200, 303)
        for path in ("/records", "/records?q=op%3Acharge", "/records?q=status%3Afailed", "/tokens?purpose=a"):
            assert "Redis finds by" in browser.get(path, 503)

        assert len(asked) > 8
        for query in asked:
            whole = query.digest_prefix is not None and len(query.digest_prefix) == 64
            led = query.process_instance or query.lapsed or query.status in (Status.UNKNOWN, Status.PENDING)
            assert whole or led, query
        app.close()


def test_numbers_are_written_as_the_language_groups_them() -> None:
    assert [grouped(lang, 20_000) for lang in ("en", "pt")] == ["20,000", "20.000"]
