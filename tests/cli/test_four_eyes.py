"""Operations that nobody decides about alone: the command line knows them by their records and refuses (X.04)."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.cli.conftest import Command
from tests.console.browser import OPEN, Browser
from tests.console.conftest import Lost, place, seen
from umavez import Once, Record, console
from umavez.console import EVERYTHING, Who
from umavez.core.record import Status
from umavez.errors import OutcomeUnknown

SIGNED = ("--by", "ana", "--reason", "on the statement of the bank")


def doubtful(once: Once, key: str) -> Record:
    """A payment that two people decide about, with nobody knowing how it ended."""

    def lost() -> None:
        raise Lost

    with suppress(Lost, OutcomeUnknown):
        once.run("wire", key=key, call=lost, unknown="hold", four_eyes=True)
    return seen(once, "wire", key)


@pytest.mark.parametrize(
    "words",
    [
        ("resolve", "--not-happened"),
        ("resolve", "--happened", "7"),
        ("resolve", "--happened", "7", "--override"),
        ("release",),
        ("release", "--override"),
    ],
    ids=" ".join,
)
def test_one_person_decides_nothing(command: Command, once: Once, store_url: str, words: tuple[str, ...]) -> None:
    record = doubtful(once, "W-1")
    verb, *options = words

    answer = command("records", verb, once.scope, "wire", "W-1", *options, *SIGNED, "--store", store_url, code=1).stderr

    assert "is decided by two people (four_eyes); nothing was done" in " ".join(answer.split())
    assert "console" in answer
    assert seen(once, "wire", "W-1") == record


def test_the_rule_outlives_attempts_decisions_and_lives(command: Command, once: Once, store_url: str) -> None:
    doubtful(once, "W-2")
    once.release("wire", "W-2", by="code", reason="by the application itself")
    assert doubtful(once, "W-2").takes_two, "the next attempt"
    once.release("wire", "W-2", by="code", reason="by the application itself")
    once.run("wire", key="W-2", call=lambda: 7, unknown="hold", four_eyes=True)

    words = ("records", "release", once.scope, "wire", "W-2", "--override", *SIGNED, "--store", store_url)

    assert "two people" in command(*words, code=1).stderr
    assert once.run("wire", key="W-2", call=lambda: 8, unknown="hold", four_eyes=True).value == 7


def test_an_order_about_many_leaves_them_out_and_says_so(command: Command, once: Once, store_url: str) -> None:
    doubtful(once, "W-3")
    search = f"status:unknown op:wire scope:{once.scope}"
    words = ("records", "resolve", "--where", search, "--not-happened", *SIGNED, "--store", store_url)

    assert "Left out: 1 that two people decide about" in command(*words).stdout
    assert seen(once, "wire", "W-3").status is Status.UNKNOWN


def test_a_console_that_knows_no_declaration_reads_it_in_the_record(once: Once, store_url: str) -> None:
    record = doubtful(once, "W-4")
    with Once(store_url, scope=once.scope) as other:
        app = console(other, authorize=lambda _: Who("ana", EVERYTHING), panels=[], as_written=True)
        try:
            browser = Browser(app)
            page = browser.get(place(record, "not-happened"))
            fields = browser.form(place(record, "not-happened")) | {"reason": "the bank has nothing"}
            answer = browser.post(place(record, "not-happened"), fields)
            OPEN.pop().close()
        finally:
            app.close()

    assert "takes two people" in page
    assert answer.headers["location"].endswith("done=proposed")
    assert seen(once, "wire", "W-4") == record


def test_an_operation_without_it_is_decided_as_ever(command: Command, once: Once, store_url: str) -> None:
    with suppress(Lost, OutcomeUnknown):
        once.run("wire", key="W-5", call=_lost, unknown="hold")
    record = seen(once, "wire", "W-5")

    assert record.evidence is None
    command("records", "release", once.scope, "wire", "W-5", *SIGNED, "--store", store_url)


def _lost() -> None:
    raise Lost
