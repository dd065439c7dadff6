"""`umavez mailing`, as it is typed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from tests.umavez_systems.mailing.far import Far, upload, work
from umavez_systems.mailing.ports import Answer, Fate
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


def test_commands_say_what_they_did(tmp_path: Path, prepared: Path) -> None:
    from typer.testing import CliRunner

    from umavez_systems.mailing.command import group

    shutil.copy(prepared, tmp_path / "c.db")
    where = ["--database", f"sqlite:///{tmp_path}/c.db"]
    (tmp_path / "lista.csv").write_text("email\na@b.com\nruim\n")

    def run(*words: str, fails: bool = False) -> str:
        done = CliRunner().invoke(group, [*words, *where])
        assert (done.exit_code != 0) == fails, (words, done.output, done.exception)
        return f"{done.output}{done.exception or ''}"

    made = run("upload", str(tmp_path / "lista.csv"), "--assunto", "Oi").split()
    assert made[1:] == ["QUEUED", "created"]
    assert "already there" in run("upload", str(tmp_path / "lista.csv"))
    assert "lista.csv" in run("list")
    assert json.loads(run("list", "--json"))["itens"][0]["mailingId"] == made[0]
    assert "PAUSED" in run("pause", made[0])
    assert "QUEUED" in run("resume", made[0])
    carrier = Carrier(Settings(database=where[1].replace("--database ", "")))
    work(carrier, made[0], Far(a=Answer(Fate.UNKNOWN, "?")))
    entry = carrier.mailing.cases.entries("local", made[0], "UNKNOWN", "", 1)[0]["id"]
    carrier.close()
    assert "a@b.com  SENT" in run("resolve", made[0], entry, "--resultado", "enviado", "--by", "ana", "--reason", "vi")
    assert "SENT" in run("show", made[0], "--follow")
    run("report", made[0], "--output", str(tmp_path / "r.csv"))
    assert (tmp_path / "r.csv").read_text().count("\n") == 3
    assert "0 entries" in run("resend", made[0])
    assert "0 mailing(s)" in run("recover")
    (tmp_path / "fora.txt").write_text("x@y.com\nb@y.com,bounce\n")
    assert "2 addresses" in run("suppress", "import", str(tmp_path / "fora.txt"))
    exported = run("suppress", "export")
    assert [line.rpartition(",")[0] for line in exported.splitlines()] == [
        "email,motivo",
        "b@y.com,bounce",
        "x@y.com,manual",
    ]
    (tmp_path / "fora.txt").write_text(exported)
    assert "0 addresses" in run("suppress", "import", str(tmp_path / "fora.txt"))
    (tmp_path / "fora.txt").write_text("ruim\nz@y.com\n")
    assert "1 lines hold no address and were left out: 1" in run(
        "suppress", "import", str(tmp_path / "fora.txt"), fails=True
    )
    assert "z@y.com,manual" in run("suppress", "export")
    assert "SENT" in run("cancel", made[0], fails=True)
    assert "Não há mailing" in run("show", "nada", fails=True)


def test_x_05_a_worker_tells_prometheus_what_it_handled(tmp_path: Path, prepared: Path) -> None:
    shutil.copy(prepared, tmp_path / "w.db")
    settings = Settings(database=f"sqlite:///{tmp_path}/w.db", storage=f"{tmp_path}/lists")
    carrier = Carrier(settings)
    mailing = upload(carrier, b"email\na@b.com\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "umavez.cli", "mailing", "work", "--relay", "--metrics-port", str(port)]
    given = {**os.environ, "UMAVEZ_DATABASE": settings.database, "UMAVEZ_STORAGE": settings.storage or ""}
    handled = re.compile(r'^umavez_message_seconds_count\{outcome="done",subscriber="mailing"\} [1-9]', re.MULTILINE)
    told = ""
    with subprocess.Popen(words, env=given, stderr=subprocess.DEVNULL) as worker:
        try:
            deadline = time.monotonic() + 60
            while not handled.search(told) and time.monotonic() < deadline:
                time.sleep(0.05)
                with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    told = answer.read().decode()
        finally:
            worker.send_signal(signal.SIGTERM)
    assert handled.search(told), told
    assert "umavez_outbox_waiting" in told
    assert worker.returncode == 0
    assert carrier.mailing.cases.mailing("local", mailing)["status"] == "SENT"
    carrier.close()
