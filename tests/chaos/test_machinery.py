"""The instruments of chaos: a trial that could not find anything would show nothing."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from chaos import Report, Setting, Trial, programmes, trials
from chaos.engine_authority import State
from chaos.engine_board import Board, History, Phase, answers
from chaos.engine_joined import examine, finish, prepared
from chaos.engine_ledger import connected, insert
from chaos.engine_swarm import Job, spawn
from chaos.proxy import Fault, Proxy


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Three keys handed out and booked, with nothing wrong."""
    job = prepared(Setting("sqlite", f"sqlite:///{tmp_path / 'x.db'}", 1, 1, tmp_path))
    board = Board(job.board)
    board.cursor = 3
    board.close()
    finish(job)
    return job


def test_a_clean_ledger_is_not_blamed(job: Job) -> None:
    report = Report()
    examine(job, report)
    assert report.violations == []
    assert report.sometimes["keys"] == 3


def test_a_second_effect_is_seen(job: Job) -> None:
    connection = connected(job.backend, job.url)
    insert(job.backend, connection, "k1", "again")
    connection.commit()
    connection.close()
    report = Report()
    examine(job, report)
    assert report.violations == ["k1 has 2 effects"]


@pytest.mark.parametrize(
    ("statement", "seen"),
    [
        ("DELETE FROM chaos_ledger WHERE item = 'k2'", "k2 has 0 effects"),
        ("DELETE FROM idempotency_records WHERE idempotency_key LIKE '%k0%'", "k0 has no SUCCESS record"),
    ],
)
def test_what_was_lost_is_seen(job: Job, statement: str, seen: str) -> None:
    connection = connected(job.backend, job.url)
    assert connection.execute(statement).rowcount == 1
    connection.commit()
    connection.close()
    report = Report()
    examine(job, report)
    assert seen in report.violations


def test_an_answer_that_nothing_stands_behind_is_seen(job: Job) -> None:
    history = History(job.history)
    history.note("answer", "k1", "made up")
    history.close()
    report = Report()
    examine(job, report)
    assert len(report.violations) == 1
    assert "made up" in report.violations[0]


def test_a_run_that_never_met_a_rare_path_is_void() -> None:
    trial = Trial("t", lambda _setting: Report(), (), 1, 1, sometimes=("rare", "often"))
    report = Report()
    report.sometimes["often"] = 3
    assert report.never(trial) == ["rare"]


def _die(job: Job) -> None:
    History(job.history).note("answer", "k", "before the end")
    Board(job.board).enter(3, Phase.EFFECT)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_noted_is_there(tmp_path: Path) -> None:
    job = Job("sqlite", "", tmp_path)
    process = spawn(_die, job)
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    process.close()
    board = Board(job.board)
    assert board.phase(3) is Phase.EFFECT
    assert answers(job.history)["k"] == {"before the end"}
    board.close()


def test_the_far_side_acts_again_unless_asked_to_dedupe() -> None:
    far = State(seed=1)
    for _ in range(2):
        far.do("a", fence=1, dedupe=True)
        far.do("b", fence=1, dedupe=False)
    assert [key for key, _ in far.ledger] == ["a", "b", "b"]


def test_the_far_side_keeps_to_its_no() -> None:
    far = State(seed=1)
    assert far.ask("a", fence=5)["value"] is None
    assert far.do("a", fence=5, dedupe=False) == {"turned_away": True}
    assert "value" in far.do("a", fence=6, dedupe=False)


@pytest.fixture
def echo() -> socket.socket:
    """A server that answers each message with itself, until its socket is closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer, suppress(ConnectionError):
                while data := peer.recv(100):
                    peer.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    return listener


@pytest.mark.parametrize(
    ("fault", "heard"),
    [
        (None, b"hello"),
        (Fault("swallow", 1), b""),
        (Fault("cut answer", 2), b"he"),
        (Fault("cut request", 4), b""),
        (Fault("delay", 1), b"hello"),
        (Fault("swallow", 2), b"hello"),
    ],
    ids=str,
)
def test_the_proxy_breaks_what_it_is_told(echo: socket.socket, fault: Fault | None, heard: bytes) -> None:
    with Proxy(f"tcp://user@127.0.0.1:{echo.getsockname()[1]}/x") as proxy:
        proxy.arm(fault)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client:
            client.sendall(b"hello")
            assert client.recv(100) == heard
    echo.shutdown(socket.SHUT_RDWR)
    echo.close()


def test_trials_are_found_by_convention() -> None:
    found = list(trials())
    assert len({trial.name for trial in found}) == len(found)
    assert {"joined: workers killed", "zombies: frozen past the lease"} <= {trial.name for trial in found}
    assert all(trial.sometimes for trial in found if trial.name.partition(":")[0] in ("joined", "outside", "zombies"))
    assert not any(name.startswith("chaos.engine") for name in programmes())
