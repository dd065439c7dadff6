"""`umavez reconcile` and `umavez sweep`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from umavez import Key, Once, Status
from umavez.core.record import Draft
from umavez.leases import Leases

SHOP = """
import sys
from umavez import {engine}, Happened

once = {engine}("{url}", scope="loja")

{prefix}def ask(question):
    return Happened("found " + question.key.value)

once.plans.declared("pay", {{"unknown": ask}})
"""


def shop(folder: Path, url: str, engine: str) -> None:
    prefix = "async " if engine == "AsyncOnce" else ""
    (folder / "shop_main.py").write_text(SHOP.format(engine=engine, url=url, prefix=prefix))


def unknown(url: str, key: str) -> None:
    with Once(url, scope="loja") as once:
        stored = Draft(Key("loja", "pay", key), f"stamp-{key}", Status.UNKNOWN, True)
        once.store.swap(None, stored)
        # The clock of a file is the host's: the question is due once the record has settled for ten seconds.
        earlier = "UPDATE idempotency_records SET updated_at = updated_at - 60000"
        once.store.file.write(lambda connection: connection.execute(earlier))  # type: ignore[attr-defined]  # SQLite's


@pytest.fixture(params=["Once", "AsyncOnce"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> str:
    shop(tmp_path, sqlite_url, request.param)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop_main", raising=False)
    return "shop_main:once"


def test_reconcile_asks_and_says_what_came_of_it(command: Command, place: str, sqlite_url: str) -> None:
    unknown(sqlite_url, "k1")
    assert command("reconcile", "--app", place).stdout == "1 asked: 1 adopted; nothing is unknown.\n"
    with Once(sqlite_url, scope="loja") as once:
        assert once.run("pay", key="k1", call=pytest.fail, unknown="hold").value == "found k1"


def test_reconcile_speaks_json(command: Command, place: str) -> None:
    report = json.loads(command("reconcile", "--app", place, "--json").stdout)
    assert (report["asked"], report["oldest_unknown"], report["errors"]) == (0, None, [])


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("nowhere", "is not MODULE:NAME"),
        ("no_such_module_x:once", "cannot be imported"),
        ("json:dumps", "there is no Once or AsyncOnce"),
    ],
    indirect=False,
)
def test_an_engine_that_is_not_there_is_one_sentence(command: Command, place: str, sentence: str) -> None:
    assert sentence in command("reconcile", "--app", place, code=2).stderr


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("raise RuntimeError('postgresql://ana:s3cret@host')", "RuntimeError at broken_app.py:1"),
        ("def f(:", "SyntaxError at broken_app.py:1"),
        ("import sys\nsys.exit(3)", "SystemExit at broken_app.py:2"),
        ("from umavez import Once\nonce = Once('nope://x', scope='s')", "'nope://x' is not a store"),
    ],
)
def test_a_module_that_breaks_is_one_sentence_without_its_secrets(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cause: str
) -> None:
    (tmp_path / "broken_app.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "broken_app", raising=False)
    answer = command("reconcile", "--app", "broken_app:once", code=2)
    assert cause in answer.stderr
    assert "s3cret" not in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_sweep_deletes_and_says_so(command: Command, sqlite_url: str) -> None:
    with Once(sqlite_url, scope="loja") as once:
        once.store.swap(None, Draft(Key("loja", "pay", "k"), "s", Status.FAILED, True, keep=0))
    assert command("sweep", "--store", sqlite_url).stdout == "1 expired record deleted.\n"
    assert json.loads(command("sweep", "--store", sqlite_url, "--json").stdout)["deleted"] == 0


def test_sweep_leaves_it_to_another_process_that_sweeps(command: Command, sqlite_url: str) -> None:
    with Once(sqlite_url, scope="loja") as once:
        Leases(once, "umavez").acquire("sweep")
        assert "another process is sweeping" in command("sweep", "--store", sqlite_url).stdout


@pytest.mark.slow
def test_a_service_ends_when_it_is_told_to(sqlite_url: str) -> None:
    with Once(sqlite_url, scope="loja") as once:
        once.migrate()
    words = [sys.executable, "-m", "umavez.cli", "sweep", "--store", sqlite_url, "--every", "1h"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}) as service:
        assert service.stdout is not None
        assert "0 expired records deleted" in service.stdout.readline()
        service.send_signal(signal.SIGTERM)
        assert service.wait(20) == 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["Once", "AsyncOnce"])
def test_a_far_side_that_hangs_does_not_keep_the_service_from_ending(
    tmp_path: Path, sqlite_url: str, engine: str
) -> None:
    shop(tmp_path, sqlite_url, engine)
    hang = "import asyncio\n    await asyncio.sleep(60)" if engine == "AsyncOnce" else "import time\n    time.sleep(60)"
    module = tmp_path / "shop_main.py"
    asking = f"(open('asked', 'w').close())\n    {hang}\n    return Happened("
    module.write_text(module.read_text().replace("return Happened(", asking))
    unknown(sqlite_url, "k1")
    words = [sys.executable, "-m", "umavez.cli", "reconcile", "--app", "shop_main:once", "--every", "1h"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as service:
        deadline = time.monotonic() + 20
        while not (tmp_path / "asked").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        service.send_signal(signal.SIGTERM)
        assert service.wait(10) == 0
    with Once(sqlite_url, scope="loja") as once:
        assert [record.status for record in once.find()] == [Status.UNKNOWN], "no claim is held"
