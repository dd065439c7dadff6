"""Commands that go on until they are stopped: all end alike, and none begins with a port that is taken."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from umavez import ConfigurationError
from umavez.cli import stopping
from umavez.cli.app import app
from umavez.cli.stopping import MARK, until_stopped
from umavez_systems.settings import Settings

SEED = 20262
STORE = "sqlite:///s.db?journal=delete"
LASTING = {
    "serve": ["serve", "--port", "0"],
    "serve by two": ["serve", "--port", "0", "--workers", "2"],
    "console": ["console", "--store", STORE, "--port", "0"],
    "observe serve": ["observe", "serve", "--store", STORE, "--port", "0"],
    "relay run": ["relay", "run", "--store", STORE],
    "sweep": ["sweep", "--store", STORE, "--every", "1h"],
    "reconcile": ["reconcile", "--app", "shop:once", "--every", "1h"],
    "reconcile by tasks": ["reconcile", "--app", "shop:tasks", "--every", "1h"],
    "mailing work": ["mailing", "work"],
    "processos work": ["processos", "work"],
    "processos portal": ["processos", "portal", "--port", "0"],
    "fiscal simular": ["fiscal", "simular"],
    "fiscal conciliar": ["fiscal", "conciliar", "--sempre"],
}
LISTENING = {
    "serve": ["serve", "--port"],
    "console": ["console", "--store", STORE, "--port"],
    "observe serve": ["observe", "serve", "--store", STORE, "--port"],
    "relay run": ["relay", "run", "--store", STORE, "--metrics-port"],
    "mailing work": ["mailing", "work", "--metrics-port"],
    "processos portal": ["processos", "portal", "--port"],
    "fiscal simular": ["fiscal", "simular", "--port"],
    "fiscal simular, its control": ["fiscal", "simular", "--control-port"],
}
SHOP = """
from umavez import AsyncOnce, Once
once = Once("sqlite:///s.db?journal=delete", scope="shop")
tasks = AsyncOnce("sqlite:///s.db?journal=delete", scope="shop")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lasting")
    (made / "shop.py").write_text(SHOP)
    for words in (["migrate", "--store", STORE], ["corridas", "sweep", "--database", "sqlite:///umavez.db"]):
        if words[0] == "corridas":
            (made / "umavez.db").touch()
        done = subprocess.run([*UMAVEZ, *words], cwd=made, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return made


UMAVEZ = [sys.executable, "-m", "umavez.cli"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("UMAVEZ_")}


def catches(process: int, number: signal.Signals) -> bool:
    """Whether a process has said what to do at a signal."""
    with open(f"/proc/{process}/status") as status:  # noqa: PTH123  # no file of a disk
        caught = next(line for line in status if line.startswith("SigCgt")).split()[1]
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("pause", [0.0, 2.5], ids=["at once", "when it runs"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("words", LASTING.values(), ids=LASTING)
def test_whoever_is_asked_to_end_ends_with_0(
    folder: Path, words: list[str], number: signal.Signals, pause: float
) -> None:
    with subprocess.Popen(
        [*UMAVEZ, *words], cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not catches(process.pid, signal.SIGTERM):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline, "nobody minds SIGTERM"
                time.sleep(0.01)
            time.sleep(pause)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert "Traceback" not in said


@pytest.mark.parametrize("words", LISTENING.values(), ids=LISTENING)
def test_a_port_that_is_taken_is_a_setting_to_correct(folder: Path, words: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run(
            [*UMAVEZ, *words, str(taken.getsockname()[1])],
            cwd=folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_port_that_only_root_may_take_is_one_too_and_a_file_is_none() -> None:
    def begin(error: OSError) -> None:
        raise error

    lasting = until_stopped(begin)
    with pytest.raises(ConfigurationError, match="port cannot be listened on"):
        lasting(PermissionError(errno.EACCES, "Permission denied"))
    with pytest.raises(PermissionError):
        lasting(PermissionError(errno.EACCES, "Permission denied", "s.db"))


def marked(command: Any, name: str = "") -> Iterator[str]:
    for word, part in getattr(command, "commands", {}).items():
        yield from marked(part, f"{name} {word}".strip())
    if hasattr(command.callback, MARK) or hasattr(getattr(command.callback, "__wrapped__", None), MARK):
        yield name


def test_no_command_goes_on_that_is_not_tried_here() -> None:
    found = set(marked(get_command(app)))
    assert {"serve", "console", "observe serve", "relay run", "mailing work"} <= found
    assert found <= LASTING.keys()


def test_who_is_asked_to_end_while_the_handlers_are_set_ends_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    real = signal.signal

    def asked_at_once(number: int, handler: Any) -> Any:
        before = real(number, handler)
        if number == signal.SIGTERM and handler is stopping._stop:
            signal.raise_signal(signal.SIGTERM)
        return before

    standing = [signal.getsignal(number) for number in stopping.SIGNALS]
    monkeypatch.setattr(signal, "signal", asked_at_once)
    try:
        stopping.until_stopped(lambda: ran.append("ran"))()
    except stopping.Stopped:
        pytest.fail("it came out, and ends the command with 130")
    assert ran == []
    assert [signal.getsignal(number) for number in stopping.SIGNALS] == standing


def test_what_a_handler_raises_while_settings_are_handed_on_is_no_error_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One in ten was, of those that came meanwhile: `umavez serve` ended with 2 and a word of pydantic's."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    settings, chance, ended = Settings(), random.Random(SEED), 0
    before = signal.signal(signal.SIGALRM, stopping._stop)
    try:
        for _ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 4e-4))
                while True:
                    settings.export()
            except stopping.Stopped:
                ended += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended == 300, SEED
