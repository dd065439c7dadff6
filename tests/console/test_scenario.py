"""A worker dies; the inbox shows it; the operator asks, decides; the caller gets the replay; the audit tells (X.04)."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.console.browser import Browser, Forms
from tests.console.conftest import place
from umavez import CannotTell, Once, OutcomeUnknown, Status, console
from umavez.console import EVERYTHING, Who

WORKER = """
import sys, time
from umavez import Once

once = Once(sys.argv[1], scope=sys.argv[2])

def charge():
    print("charging", flush=True)   # the bank is told here, and nobody hears what it says
    time.sleep(600)

once.run("charge", key="order-42", call=charge, unknown="hold", lease=1)
"""


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_worker_dies_and_somebody_decides(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db?journal=delete" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    scope = f"loja-{secrets.token_hex(4)}"
    asked: list[str] = []

    def ask(question: object) -> CannotTell:
        asked.append("asked")
        return CannotTell("503 from the bank")

    with Once(url, scope=scope) as once:
        once.migrate()
        charge = once.operation("charge", key=lambda order: order, unknown=ask, lease=1)(_runs_twice)
        _killed(url, scope)
        app = console(once, authorize=lambda _: Who("ana", EVERYTHING), panels=[])
        browser = Browser(app, "203.0.113.9")
        record = once.get("charge", "order-42")
        assert record is not None

        _until_lapsed(once)
        inbox = browser.get("/unknown")
        assert "order-42" in inbox
        assert "holder gone" in inbox
        assert "happens twice" in inbox, "what a wrong decision causes is said"

        fields = browser.form("/unknown", f"{record.key.digest.hex()}/ask")
        told = browser.done(place(record, "ask"), fields)
        assert "could not tell" in told
        assert "503 from the bank" in told
        assert asked == ["asked"]

        with pytest.raises(OutcomeUnknown):
            charge("order-42")  # asks again, in vain
        where = place(record, "happened")
        page = browser.done(
            where, browser.form(where) | {"result": '{"charge": 99812}', "reason": "on the statement of the bank"}
        )
        assert "recorded as happened" in page
        assert "resolved" in page
        assert "on the statement of the bank" in page

        again = charge.once("order-42")
        assert (again.value, again.replayed) == ({"charge": 99812}, True)
        assert "order-42" not in browser.get("/unknown")
        story = " ".join("".join(Forms(browser.get("/decisions")).text).split())
        for word in ("ask: left", "happened: happened", "ana", "203.0.113.9", "on the statement of the bank"):
            assert word in story, word
        assert story.index("happened: happened") < story.index("ask: left"), "the newest first"
        settled = once.get("charge", "order-42")
        assert settled is not None
        assert settled.status is Status.SUCCESS
        app.close()


def _runs_twice(order: str) -> None:
    raise AssertionError("it ran a second time")


def _empty(url: str) -> None:
    """On a server the doubts of other tests would stand before ours."""
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM idempotency_records")


def _killed(url: str, scope: str) -> None:
    _empty(url)
    with subprocess.Popen([sys.executable, "-c", WORKER, url, scope], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "charging\n"
        worker.send_signal(signal.SIGKILL)
        worker.wait(30)


def _until_lapsed(once: Once) -> None:
    """The worker was another process: its lease ends by the store's own clock."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if once.find(lapsed=True):
            return
        time.sleep(0.05)
    pytest.fail("the lease of a dead worker did not end")
