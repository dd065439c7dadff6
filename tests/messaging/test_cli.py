"""`umavez relay` and `umavez outbox`, seen from outside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.messaging.places import TABLES, place_of
from umavez.errors import ConfigurationError
from umavez.messaging import Database, LocalBroker, Message, Outbox


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "loja.db"
    with closing(sqlite3.connect(path)) as connection:
        Outbox().migrate(connection)
        connection.commit()
    return path


def url(file: Path) -> str:
    return f"sqlite:///{file}?journal=delete"


def umavez(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "umavez.cli", *words],
        env={**os.environ, "UMAVEZ_STORE": url(file)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def append(file: Path, *messages: Message) -> None:
    with closing(sqlite3.connect(file)) as connection:
        Outbox().append(connection, messages)
        connection.commit()


def states(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return [state for (state,) in connection.execute("SELECT state FROM umavez_outbox ORDER BY seq")]


def subscribe(file: Path) -> None:
    async def work() -> None:
        database = Database(url(file))
        await LocalBroker(database).subscribe("mailer", ["t"])
        await database.close()

    asyncio.run(work())


def test_a_relay_publishes_until_it_is_told_to_stop_and_stops_gracefully(file: Path) -> None:
    subscribe(file)
    append(file, Message("t", "1"), Message("t", "2"))
    command = [sys.executable, "-m", "umavez.cli", "relay", "run", "--store", url(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as relay:
        deadline = time.monotonic() + 30
        while states(file) != ["DONE", "DONE"] and time.monotonic() < deadline:
            time.sleep(0.05)
        relay.send_signal(signal.SIGTERM)
        said, _ = relay.communicate(timeout=30)
    assert (relay.returncode, said) == (0, "2 messages were published.\n")
    assert states(file) == ["DONE", "DONE"]


def test_dead_messages_are_listed_retried_and_discarded(file: Path) -> None:
    messages = [Message("t", '"secret"'), Message("t", "2")]
    append(file, *messages)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE umavez_outbox SET state = 'DEAD', error = 'no queue', attempts = 9")
        connection.commit()
    listed = json.loads(umavez(file, "outbox", "list", "--state", "dead", "--json").stdout)
    assert [entry["error"] for entry in listed["messages"]] == ["no queue", "no queue"]
    assert listed["counts"]["DEAD"] == 2
    assert "no queue" in umavez(file, "outbox", "dead").stdout
    shown = umavez(file, "outbox", "show", messages[0].id)
    assert "secret" not in shown.stdout
    assert "secret" in umavez(file, "outbox", "show", messages[0].id, "--body").stdout
    half = umavez(file, "outbox", "retry", messages[0].id, "--by", "ana")
    assert (half.returncode, "--reason" in half.stderr, states(file)) == (2, True, ["DEAD", "DEAD"])
    signed = umavez(file, "outbox", "retry", messages[0].id, "--by", "ana", "--reason", "the queue is back")
    assert signed.stdout == "1 message waits again.\n"
    assert "Retried by ana: the queue is back" in umavez(file, "outbox", "show", messages[0].id).stdout
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE umavez_outbox SET state = 'DEAD' WHERE id = ?", (messages[0].id,))
        connection.commit()
    assert umavez(file, "outbox", "retry", messages[0].id).stdout == "1 message waits again.\n"
    done = umavez(file, "outbox", "discard", messages[1].id, "--by", "ana", "--reason", "obsolete")
    assert done.returncode == 0, done.stderr
    assert states(file) == ["WAITING", "DISCARDED"]


def test_what_is_not_there_is_said_in_one_sentence(file: Path) -> None:
    done = umavez(file, "outbox", "retry", "nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    done = umavez(file, "outbox", "retry")
    assert (done.returncode, "which message" in done.stderr) == (2, True)
    done = umavez(file, "relay", "run", "--broker", "kafka://x")
    assert (done.returncode, "amqp://" in done.stderr) == (2, True)


def test_a_wal_file_that_two_writers_could_damage_is_refused_before_it_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umavez.stores.sqlite.connection.WAL_IS_SAFE", False)
    file = tmp_path / "j.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (x)")

    async def look() -> None:
        database = Database(f"sqlite:///{file}")
        try:
            await database.migrate()
        finally:
            await database.close()

    with pytest.raises(ConfigurationError, match="journal=delete"):
        asyncio.run(look())

    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_message_is_discarded_by_somebody_for_a_reason(file: Path) -> None:
    refused = umavez(file, "outbox", "discard", "1", "--by", " ", "--reason", "obsolete")

    assert refused.returncode == 2
    assert "--by" in refused.stderr


def test_a_listed_message_cannot_steer_the_terminal(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        Outbox().append(connection, [Message.of("orders\x1b[2J", {"n": 1})])
        connection.commit()

    assert "\x1b" not in umavez(file, "outbox", "list").stdout


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
@pytest.mark.parametrize("words", [("outbox", "list"), ("relay", "run")], ids=" ".join)
def test_without_tables_the_command_that_helps_is_named(
    kind: str, words: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        store = url(tmp_path / "empty.db")
    else:
        store = request.getfixturevalue(f"{kind}_url")
        with closing(place_of(store).connect()) as connection:
            for table in TABLES:
                connection.cursor().execute(f"DROP TABLE IF EXISTS {table}")
            connection.commit()
    done = subprocess.run(
        [sys.executable, "-m", "umavez.cli", *words, "--store", store],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert "umavez migrate --store URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_relay_tells_prometheus_how_far_behind_it_is(file: Path) -> None:
    append(file, Message("nobody.wants.it", "1"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "umavez.cli", "relay", "run", "--store", url(file), "--lease", "60"]
    with subprocess.Popen([*command, "--metrics-port", str(port)], stderr=subprocess.DEVNULL) as relay:
        try:
            told = ""
            deadline = time.monotonic() + 30
            while "umavez_outbox_waiting" not in told and time.monotonic() < deadline:
                time.sleep(0.05)
                with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    told = answer.read().decode()
        finally:
            relay.send_signal(signal.SIGTERM)
    assert "umavez_outbox_waiting" in told
    assert "umavez_outbox_oldest_due_seconds" in told
    assert relay.returncode == 0
