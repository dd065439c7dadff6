"""The simulator's life: one for a folder, and none without a user."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from umavez_systems.fiscal.simulador import keeper
from umavez_systems.fiscal.simulador.__main__ import ADDRESS, USERS
from umavez_systems.fiscal.simulador.ledger import Livros

UMAVEZ = Path(sys.executable).parent / "umavez"
PATIENCE = 60.0
"""Seconds for what takes one on an idle machine."""


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=10, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def server(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A real `umavez serve` in a folder of its own, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen([str(UMAVEZ), "serve", "--port", str(port)], cwd=folder)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(f"{address}/health"), "the server did not start")
        yield process, address
    finally:
        process.kill()
        process.wait()


def test_s4_13_the_simulator_ends_with_a_server_that_was_killed(tmp_path: Path) -> None:
    with server(tmp_path) as (process, address):
        httpx.get(f"{address}/api/v1/fiscal/ambiente", timeout=PATIENCE).raise_for_status()
        control = json.loads((tmp_path / "umavez-fiscal" / ADDRESS).read_text())["controle"]
        assert answers(f"{control}/_sim/saude")

        process.send_signal(signal.SIGKILL)  # and nobody takes notice: it stays a zombie until the end of the block

        wait_until(lambda: not answers(f"{control}/_sim/saude"), "the simulator lives on without its server")


STARTER = (
    "import pathlib, sys; from umavez_systems.fiscal.simulador import keeper;"
    " print(keeper.manter(pathlib.Path(sys.argv[1])).pid, flush=True); sys.stdin.read()"
)


def test_s4_13_a_simulator_outlives_who_started_it_as_long_as_somebody_uses_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        started = int(starter.stdout.readline())
        found = keeper.manter(tmp_path)
        starter.communicate(timeout=PATIENCE)
    try:
        assert found.pid == started
        with (tmp_path / USERS).open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as the simulator tries before it ends
        assert keeper.em_pe(tmp_path) == found
    finally:
        os.kill(started, signal.SIGKILL)


def test_two_simulators_never_share_their_books(tmp_path: Path) -> None:
    found = keeper.manter(tmp_path)
    command = [sys.executable, "-m", "umavez_systems.fiscal.simulador", "--state", str(tmp_path)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert second.returncode != 0
    assert "outro simulador" in second.stderr
    assert keeper.em_pe(tmp_path) == found
    keeper.parar(found)


def test_what_has_ended_is_not_kept_in_mind(tmp_path: Path) -> None:
    first = keeper.manter(tmp_path)
    os.kill(first.pid, signal.SIGKILL)
    keeper._STARTED[first.pid].wait(PATIENCE)
    again = keeper.manter(tmp_path)

    assert first.pid not in keeper._STARTED
    assert again.pid in keeper._STARTED
    keeper.parar(again)


def test_the_authoritys_hour_can_be_shortened_and_stays_so(tmp_path: Path) -> None:
    books = Livros(tmp_path / "livro.db")
    assert books.hour == 3_600_000
    books.shorten({"segundos": 180})
    for wrong in (0, 3601, 1.5, True, "180", None):
        with pytest.raises(ValueError, match="segundos"):
            books.shorten({"segundos": wrong})
    books.close()
    again = Livros(tmp_path / "livro.db")
    assert again.hour == 180_000
    again.close()


def test_a_simulator_that_moved_is_found_where_it_is_now(tmp_path: Path) -> None:
    assert keeper.endereco(tmp_path) is None
    for port in (1001, 1002):
        made = tmp_path / "novo"
        made.write_text(json.dumps({"servicos": f"https://127.0.0.1:{port}"}))
        made.replace(tmp_path / ADDRESS)
        assert [keeper.endereco(tmp_path) for _ in range(2)] == [f"https://127.0.0.1:{port}"] * 2
    (tmp_path / ADDRESS).write_text("{}")
    assert keeper.endereco(tmp_path) is None
