"""`umavez records resolve|release --where`, `records count`, and lists that are watched."""

from __future__ import annotations

import json
import re
import threading

import pytest

from tests.cli.conftest import Command
from tests.console.browser import Browser
from tests.console.conftest import doubt, seen
from umavez import Once, console
from umavez.cli.screen import watching
from umavez.console import EVERYTHING, Who
from umavez.core.record import Status
from umavez.migration import migrate

SIGNED = ("--by", "ana", "--reason", "the bank has none of these")


def shown(text: str) -> tuple[str, ...]:
    """The words that a list without --count says to go on with."""
    found = re.search(r"(--count) (\d+) (--before) (\S+)", text)
    assert found is not None, text
    return found.groups()


def words(once: Once, store_url: str, verb: str = "resolve", status: str = "unknown") -> tuple[str, ...]:
    search = f"status:{status} op:charge scope:{once.scope}"
    return ("records", verb, "--where", search, "--store", store_url, *SIGNED)


def test_nothing_is_done_until_the_number_and_the_time_are_given(command: Command, once: Once, store_url: str) -> None:
    records = [doubt(once, f"C-{number}", error="503 from the bank") for number in range(3)]
    ask = (*words(once, store_url), "--not-happened")

    first = command(*ask).stdout
    assert "503 from the bank" in first
    assert "Nothing was done" in first
    assert [seen(once, "charge", record.key.value) for record in records] == records

    done = command(*ask, *shown(first)).stdout
    assert "3 recorded as not happened; their keys are free; 0 passed over" in done
    for record in records:
        assert once.run("charge", key=record.key.value, call=lambda: "ran", unknown="hold").value == "ran"


def test_what_changed_since_it_was_shown_makes_the_number_wrong(command: Command, once: Once, store_url: str) -> None:
    doubt(once, "C-10")
    doubt(once, "C-11")
    ask = (*words(once, store_url), "--not-happened")
    go_on = shown(command(*ask).stdout)
    once.release("charge", "C-10", by="rui", reason="he was faster")
    again, new = doubt(once, "C-10"), doubt(once, "C-12")

    answer = command(*ask, *go_on, code=1)

    assert "not 2; nothing was done" in answer.stderr
    assert (seen(once, "charge", "C-10"), seen(once, "charge", "C-12")) == (again, new)
    assert seen(once, "charge", "C-11").status is Status.UNKNOWN


def test_one_result_is_recorded_for_all_and_the_console_tells_the_story(
    command: Command, once: Once, store_url: str
) -> None:
    doubt(once, "C-20")
    ask = (*words(once, store_url), "--happened", '{"paid": true}')
    command(*ask, *shown(command(*ask).stdout))

    again = once.run("charge", key="C-20", call=lambda: "ran", unknown="hold")
    assert (again.value, again.replayed) == ({"paid": True}, True)
    app = console(once, authorize=lambda _: Who("rui", EVERYTHING), panels=[])
    story = Browser(app).get("/decisions")
    assert "command line" in story
    assert "charge C-20" in story
    app.close()


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (("--where", "op:charge", "--not-happened"), "status:unknown or status:lapsed"),
        (("--where", 'op:"', "--not-happened"), "--where:"),
        (("--where", "status:unknown", "--happened", "1"), "One answer is for one operation"),
        (("loja", "charge", "A-1", "--where", "status:unknown", "--not-happened"), "--where stands alone"),
        (("--not-happened",), "SCOPE OPERATION KEY"),
        (("--where", "status:unknown", "--not-happened", "--count", "1", "--before", "now"), "copy it from there"),
    ],
)
def test_what_is_not_understood_is_said_in_a_sentence(
    command: Command, sqlite_url: str, extra: tuple[str, ...], sentence: str
) -> None:
    migrate(sqlite_url)

    answer = command("records", "resolve", *extra, "--store", sqlite_url, *SIGNED, code=2)

    assert sentence in answer.stderr


def test_failed_keys_are_freed_together(command: Command, once: Once, store_url: str) -> None:
    if store_url.startswith("redis"):
        pytest.skip("Redis does not find what has failed")

    def broken() -> None:
        raise ValueError("no card")

    with pytest.raises(ValueError, match="no card"):
        once.run("charge", key="C-30", call=broken, unknown="rerun", max_retries=0, free=ValueError)
    with pytest.raises(ValueError, match="no card"):
        once.run("charge", key="C-31", call=broken, unknown="rerun", max_retries=5)
    ask = words(once, store_url, "release", "failed")
    first = command(*ask).stdout
    if "No groups match" not in first:
        command(*ask, *shown(first))
    assert once.run("charge", key="C-31", call=lambda: "ran", unknown="rerun").value == "ran"


def test_counts_have_a_header_and_a_bound(command: Command, once: Once, store_url: str) -> None:
    doubt(once, "C-40")
    text = command("records", "count", "--store", store_url).stdout
    assert re.search(r"STATE +RECORDS\nunknown +\d", text)
    assert json.loads(command("records", "count", "--store", store_url, "--json").stdout)["unknown"]["number"] >= 1


def test_a_list_is_drawn_again_until_a_signal(
    command: Command, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            looks.append(timeout or 0.0)
            return len(looks) == 3

    monkeypatch.setattr(watching, "stop_on_signal", Stop)
    with Once(sqlite_url, scope="loja") as once:
        once.run("charge", key="C-50", call=lambda: 1, unknown="hold")
    text = command("records", "list", "--store", sqlite_url, "--watch", "2s").stdout

    assert text.count("C-50") == 3
    assert looks == [2.0, 2.0, 2.0]


def test_the_newest_come_first(command: Command, sqlite_url: str) -> None:
    with Once(sqlite_url, scope="loja") as once:
        for number in range(3):
            once.run("charge", key=f"C-6{number}", call=lambda: 1, unknown="hold")
            threading.Event().wait(0.002)
    found = json.loads(command("records", "list", "--store", sqlite_url, "--json").stdout)["records"]
    turned = json.loads(command("records", "list", "--store", sqlite_url, "--json", "--oldest-first").stdout)["records"]

    assert [record["idempotency_key"] for record in found] == ["C-62", "C-61", "C-60"]
    assert turned == found[::-1]
