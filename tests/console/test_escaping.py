"""What strangers wrote is text on every page, in both languages: names, keys, errors, reasons, topics (X.04)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.console.browser import Browser, Forms
from tests.console.conftest import doubt, place
from umavez import Happened, Key, Once, console
from umavez.console import EVERYTHING, Link, Tile, Who, instruments
from umavez.console.decisions import Deed
from umavez.console.instruments import cell
from umavez.console.orders.choosing import Sight
from umavez.core.record import Draft, Record, Status
from umavez.core.telling.events import Process, holder_of, prefix_of
from umavez.leases import Leases
from umavez.messaging import Message, Outbox
from umavez.migration import migrate
from umavez.sequences import Range, Sequences
from umavez.sql.database import writing
from umavez.stores import Chronicle
from umavez.tokens import Tokens

EVIL = "\"'><x-evil onclick=\"a()\" style='b'>&amp;{{7*7}}{% raise %}</textarea></script>\u202e=1+1"
SAFE_TAGS = frozenset(("x-evil", "onclick", "style", "onload", "onerror"))


class EvilPanel:
    """A system whose every text was written by somebody else."""

    name = EVIL
    page = "/evil"

    def tile(self) -> Tile:
        return Tile(EVIL, ((EVIL, EVIL),), "javascript:alert(1)", alarm=True)

    def find(self, word: str) -> list[Link]:
        return [Link(EVIL, "/there"), Link(EVIL, "javascript:alert(1)"), Link(EVIL, "//evil.example")]

    def links(self, record: Record) -> list[Link]:
        return self.find("")


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[tuple[Once, list[str]]]:
    """A store in which every text is evil, and the pages that show it."""
    url = f"sqlite:///{tmp_path}/evil.db?journal=delete"
    migrate(url)
    with Once(url, scope=EVIL) as once:
        record = doubt(once, EVIL, EVIL, EVIL)
        once.run(f"POST /{EVIL}", key=EVIL, call=lambda: EVIL, unknown="hold", process_instance=EVIL, activity=EVIL)
        once.resolve(EVIL, EVIL, Happened(EVIL), by=EVIL, reason=EVIL)
        doubt(once, f"{EVIL}2", EVIL, EVIL)
        strange = Draft(
            Key(EVIL, EVIL, "3"),
            EVIL,
            Status.UNKNOWN,
            False,
            error=EVIL,
            evidence=json.dumps([EVIL, {"at": 1, "what": EVIL, "by": EVIL}]),
        )
        once.store.swap(None, strange)
        assert isinstance(once.store, Chronicle)
        once.store.announce(Process(prefix_of(holder_of(record.stamp)), EVIL, 1, EVIL, EVIL))
        Leases(once).acquire(EVIL)
        Tokens(once, "purpose", unknown="hold").issue(EVIL, EVIL)
        with writing(url, "messages") as connection:
            Outbox().append(connection, Message("topic", EVIL))
            connection.execute(
                "UPDATE umavez_outbox SET state = 'DEAD', error = ?, id = ?, topic = ?, aggregate = ?", (EVIL,) * 4
            )
            Sequences().define(connection, EVIL, EVIL, ranges=[Range(1, 99)])
            Sequences().block_range(connection, EVIL, EVIL, 5, 9, reason=EVIL)
        one = place(record)
        other = place(once.find(every_scope=True, key=f"{EVIL}2")[0])
        third = place(once.find(every_scope=True, key="3")[0])
        pages = ["/", "/unknown", "/records", f"/records?q={_quoted(EVIL)}", "/records?q=%22", one, other, third]
        pages += [f"{one}/happened", f"{other}/happened", f"{other}/not-happened", "/messages", "/leases", "/sequences"]
        pages += [f"/message?id={_quoted(EVIL)}", f"/message/discard?id={_quoted(EVIL)}", "/decisions"]
        pages += [f"/tokens?owner={_quoted(EVIL)}", f"/records?q=key:{_quoted(EVIL)}", f"/records/{_quoted(EVIL)}"]
        pages += [f"/message?id=a{_quoted(EVIL)}", f"/messages?subscriber={_quoted(EVIL)}", f"/?a={_quoted(EVIL)}"]
        pages += [f"/operation?name={_quoted(EVIL)}", "/processes", "/bulk?action=happened&q=status:unknown"]
        yield once, pages


def _quoted(text: str) -> str:
    return quote(text, safe="")


@pytest.mark.parametrize("language", ["en", "pt"])
def test_what_strangers_wrote_is_text_everywhere(evil: tuple[Once, list[str]], language: str) -> None:
    once, pages = evil
    app = console(once, authorize=lambda _: Who(EVIL, EVERYTHING), panels=[EvilPanel()])
    browser = Browser(app, language=language)
    other = pages[6]
    fields = browser.form(f"{other}/not-happened")
    answer = browser.post(f"{other}/not-happened", fields | {"reason": f"{EVIL} {EVIL}"})
    assert answer.status_code == 303
    stale = browser.post(f"{other}/not-happened", fields | {"form": EVIL, "reason": EVIL * 2, "seen_status": EVIL})
    wrong = browser.post(f"{pages[5]}/happened", browser.form(f"{pages[5]}/happened") | {"reason": "x", "result": EVIL})
    texts = {path: browser.client.get(path).text for path in pages}
    texts |= {"stale": stale.text, "wrong": wrong.text}

    assert (stale.status_code, wrong.status_code) == (409, 400)
    shown = 0
    for path, text in texts.items():
        drawn = Forms(text)
        assert not SAFE_TAGS & set(drawn.tags), path
        assert not [link for link in drawn.links if link.startswith(("javascript:", "//"))], path
        shown += "x-evil" in "".join(drawn.text) and "{{7*7}}" in "".join(drawn.text)
    assert shown > 15, "the pages show what was written, as text"
    app.close()


@pytest.mark.parametrize("language", ["en", "pt"])
def test_orders_notes_and_proposals_are_text_too(evil: tuple[Once, list[str]], language: str) -> None:
    once, pages = evil
    once.plans.declared("two", {"unknown": "hold", "four_eyes": True})
    both = place(doubt(once, EVIL, "two", EVIL))
    app = console(once, authorize=lambda _: Who(EVIL, EVERYTHING), panels=[])
    other = console(once, authorize=lambda _: Who("rui", EVERYTHING), panels=[])
    browser, second = Browser(app, language=language), Browser(other, language=language)
    why = {"reason": EVIL * 2}
    note = browser.form("/unknown", f"{pages[7]}/note") | why | {"to": EVIL, "hours": "1"}
    assert browser.post(f"{pages[7]}/note", note).status_code == 303
    proposal = browser.form(f"{both}/happened") | why | {"result": json.dumps(EVIL)}
    assert browser.post(f"{both}/happened", proposal).status_code == 303
    escaped = EVIL.replace("\\", "\\\\").replace('"', '\\"')
    search = f'status:unknown op:"{escaped}"'
    order = f"/bulk?action=not-happened&q={_quoted(search)}"
    fields = browser.form(order) | why
    wrong = browser.post(order, fields | {"typed": EVIL})
    assert wrong.status_code == 400
    number = fields["sight"]
    done = browser.post(order, fields | {"typed": str(len(Sight.read(number).seen))})
    assert done.status_code == 303, done.text
    app.bulks.close()
    texts = [wrong.text, *(second.get(path) for path in ("/unknown?show=all", both, f"{both}/agree"))]
    texts += [browser.get(path) for path in (order, done.headers["location"], "/decisions")]

    for text in texts:
        drawn = Forms(text)
        assert not SAFE_TAGS & set(drawn.tags)
        assert "x-evil" in "".join(drawn.text)
    app.close()
    other.close()


def test_no_spreadsheet_takes_a_cell_for_a_formula(evil: tuple[Once, list[str]]) -> None:
    once, pages = evil
    app = console(once, authorize=lambda _: Who("=cmd()", EVERYTHING), panels=[])
    browser = Browser(app)
    where = f"{pages[6]}/not-happened"
    assert browser.post(where, browser.form(where) | {"reason": "@SUM(1+1)*cmd"}).status_code == 303

    text = browser.get("/decisions.csv")

    assert "'@SUM(1+1)*cmd" in text
    assert "'=cmd()" in text
    for evil_start in "=+-@\t\r":
        assert cell(f"{evil_start}1").startswith("'")
    app.close()


@pytest.mark.parametrize("parted_by", [",", ";", "\t"])
def test_no_cell_is_a_formula_wherever_a_spreadsheet_parts_the_lines(parted_by: str) -> None:
    formulas = ("=cmd()", "+1", "-1", "@SUM(1)", "＝cmd()", "－1")
    written = [f"{before}{formula}" for before in ("", "a;", "a,b;", "a\n", "a\r\n", "a\t") for formula in formulas]
    text = io.StringIO()
    csv.writer(text).writerows(["first", cell(each), "last"] for each in written)
    for mark in "=+-@＝－":
        for line in csv.reader(io.StringIO(text.getvalue(), newline=""), delimiter=parted_by):
            assert not any(part.startswith(mark) for part in line), line


def test_a_month_is_exported_whole(evil: tuple[Once, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    once, _ = evil
    monkeypatch.setattr(instruments, "EXPORTED", 2)
    app = console(once, authorize=lambda _: Who("ana", EVERYTHING), panels=[])
    for number in range(7):
        deed = Deed(Who("ana", EVERYTHING), "", "note", f"f-{number}", f"subject {number}")
        app.decisions.carry_out(deed, lambda _: "done")
    lines = list(csv.DictReader(io.StringIO(Browser(app).get("/decisions.csv"))))
    assert [line["subject"] for line in lines] == [f"subject {number}" for number in reversed(range(7))]
    app.close()
