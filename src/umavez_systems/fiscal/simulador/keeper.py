"""Keeps one simulator running for a folder, whoever asks: the first to need it starts it, the others find it.

Whoever uses it holds a shared lock on a file of the folder. The operating system takes the lock back however a process
ends, so a simulator that can have the file for itself has no user left, and ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import httpx

from umavez import StoreUnavailable
from umavez_systems.fiscal.simulador.__main__ import ADDRESS, USERS

PATIENCE = 30.0
_STARTED: dict[int, subprocess.Popen[str]] = {}
"""The simulators that this process began, to be ended by it."""
_USED: dict[Path, int] = {}
"""The files by which this process says what it uses, open as long as it lives; a forked child uses it too."""


@dataclass(frozen=True, slots=True)
class Simulador:
    """Where a running simulator is."""

    servicos: str
    controle: str
    ca: str
    pid: int

    @property
    def ca_pem(self) -> str:
        """The CA's certificate, to verify the services with."""
        return Path(self.ca).read_text()


def endereco(folder: Path) -> str | None:
    """Where the simulator of `folder` said that its services are; a restarted one may have moved."""
    path = f"{folder}/{ADDRESS}"
    try:
        state = os.stat(path)  # noqa: PTH116  # a Path would cost as much as the look
        return _address(path, state.st_mtime_ns, state.st_ino)
    except (OSError, ValueError, KeyError):
        return None


@lru_cache(maxsize=100)
def _address(path: str, _changed: int, _file: int) -> str:
    """Read once for each time that it was written: every call to an authority asks for it."""
    found: str = json.loads(Path(path).read_text())["servicos"]
    return found


def em_pe(folder: Path) -> Simulador | None:
    """The simulator of `folder` if it answers."""
    try:
        found = Simulador(**json.loads((folder / ADDRESS).read_text()))
        httpx.get(f"{found.controle}/_sim/saude", timeout=PATIENCE / 3, trust_env=False).raise_for_status()
    except (OSError, ValueError, TypeError, httpx.HTTPError):
        return None
    return found


def manter(folder: Path) -> Simulador:
    """The simulator of `folder`, started if there is none; it ends with its last user. Raises StoreUnavailable.

    After a restart it listens where it did before, so that nobody has to be told.
    """
    if folder.is_dir():
        usar(folder)  # before the look: one that was found must not be ending
    found = em_pe(folder)
    if found is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        return em_pe(folder) or iniciar(folder)


def usar(folder: Path) -> None:
    """Say that this process uses the simulator of `folder`, from now until it ends in whatever way."""
    path = folder.resolve() / USERS
    held = _USED.get(path)
    if held is not None and path.exists() and path.stat().st_ino == os.fstat(held).st_ino:
        return  # the same file: a folder that was deleted meanwhile has another
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(file, fcntl.LOCK_SH)  # waits only for a simulator that is ending
    _USED[path] = file


def iniciar(folder: Path) -> Simulador:
    """Start a simulator, at its former ports where they are free."""
    usar(folder)
    for pid in [pid for pid, process in _STARTED.items() if process.poll() is not None]:
        del _STARTED[pid]
    for ports in (_former(folder), ("0", "0")):
        command = [sys.executable, "-m", "umavez_systems.fiscal.simulador", "--state", str(folder), "--while-used"]
        command += ["--port", ports[0], "--control-port", ports[1]]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603  # our own module
        assert process.stdout is not None  # noqa: S101  # it is a pipe
        line = process.stdout.readline()
        process.stdout.close()
        if line:
            _STARTED[process.pid] = process
            return Simulador(**json.loads(line))
        process.wait(PATIENCE)
    raise StoreUnavailable("The simulated authorities did not start; look at the lines above.")


def parar(simulador: Simulador) -> None:
    """End a simulator that this process started; its books stay."""
    process = _STARTED.pop(simulador.pid, None)
    if process is not None:
        process.kill()
        process.wait(PATIENCE)


def _former(folder: Path) -> tuple[str, str]:
    try:
        found = json.loads((folder / ADDRESS).read_text())
        return found["servicos"].rpartition(":")[2], found["controle"].rpartition(":")[2]
    except (OSError, ValueError, KeyError):
        return "0", "0"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "tranca").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
