"""Private servers: started from installed programs in a temporary folder, gone at the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.kind import Account, Kind, Launch, NoAnswer, Place

KEEPER = Path(__file__).with_name("keeper.py")
ATTEMPTS = 3


class CannotStart(Exception):
    """The programs are there but no private server came up; the text carries the end of its log."""


def _stands_still(process: int) -> bool:
    """Whether no thread of a process runs: stopped, or gone."""
    states = set()
    for task in Path(f"/proc/{process}/task").glob("*/stat"):
        with suppress(OSError):
            states.add(task.read_text().rpartition(")")[2].split()[0])
    return states <= {"T", "t", "Z", "X"}


@dataclass
class Private:
    """A running private server. A test that asked for it may kill, freeze and restart it."""

    kind: Kind
    url: str
    version: str
    directory: Path
    plan: dict[str, Any] = field(repr=False)
    keeper: subprocess.Popen[str] = field(repr=False)

    @property
    def pid(self) -> int:
        """The process id of the server, which leads a group of its own."""
        return int(Path(self.plan["pid_file"]).read_text())

    def kill(self) -> None:
        """The server and its children are gone at once, as after a power cut; its files stay."""
        os.killpg(self.pid, signal.SIGKILL)
        self.keeper.wait(10)

    def freeze(self) -> None:
        """The server keeps its connections and answers nothing until `thaw`."""
        os.killpg(self.pid, signal.SIGSTOP)
        self._signal_children(signal.SIGSTOP)
        # A busy machine stops threads one after the other: one that still runs would answer once more.
        deadline = time.monotonic() + 10
        while not all(map(_stands_still, (self.pid, *self._children()))):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.kind.name} did not stop within 10 s of SIGSTOP")
            time.sleep(0.005)

    def thaw(self) -> None:
        """A frozen server goes on where it stood."""
        self._signal_children(signal.SIGCONT)
        os.killpg(self.pid, signal.SIGCONT)

    def _signal_children(self, number: signal.Signals) -> None:
        """PostgreSQL's processes, one for each connection, leave the group of the one that started them."""
        for child in self._children():
            with suppress(ProcessLookupError):
                os.kill(child, number)

    def _children(self) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(child) for child in children.read_text().split()] if children.exists() else []

    def restart(self) -> None:
        """The server runs again on the same port and files, after `kill`."""
        self.keeper = _keep(self.plan)
        _await_answer(self.kind, self.url, self.plan, self.keeper)

    def stop(self) -> None:
        """The server is stopped and its files are removed."""
        if self.keeper.poll() is None:
            self.keeper.terminate()
            self.keeper.wait(30)
        shutil.rmtree(self.directory, ignore_errors=True)


def start(kind: Kind, programs: dict[str, Path], owner: int) -> Private:
    """Start a server that lives no longer than the process `owner`; CannotStart if it does not come up."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _start_once(kind, programs, owner)
        except _PortTaken as error:
            if attempt == ATTEMPTS:
                raise CannotStart(str(error)) from error
    raise AssertionError  # pragma: no cover


class _PortTaken(CannotStart):
    """Between choosing a port and listening on it another process may take it."""


def _start_once(kind: Kind, programs: dict[str, Path], owner: int) -> Private:
    directory = Path(tempfile.mkdtemp(prefix=f"umavez-{kind.name}-"))
    account = kind.account()
    try:
        launch = kind.prepare(Place(directory, free_port(), programs, _executor(directory, account)))
        plan = _plan(kind, launch, directory, account, owner)
        _hand_over(directory, account)
        keeper = _keep(plan)
        version = _await_answer(kind, launch.url, plan, keeper)
    except (CannotStart, OSError) as error:
        shutil.rmtree(directory, ignore_errors=True)
        if isinstance(error, CannotStart):
            raise
        raise CannotStart(str(error)) from error
    return Private(kind, launch.url, version, directory, plan, keeper)


def _plan(kind: Kind, launch: Launch, directory: Path, account: Account | None, owner: int) -> dict[str, Any]:
    return {
        "command": launch.command,
        "directory": str(directory),
        "environment": {**_environment(directory), **launch.environment},
        "log_file": str(directory / "server.log"),
        "owner": owner,
        "pid_file": str(directory / "server.pid"),
        "stop_signal": int(kind.stop_signal),
        "uid": account.uid if account else None,
        "gid": account.gid if account else None,
    }


def _keep(plan: dict[str, Any]) -> subprocess.Popen[str]:
    """Start the keeper in its own session, so that Ctrl-C reaches the tests, not the servers below them."""
    keeper = subprocess.Popen(
        [*plan.get("within", ()), sys.executable, str(KEEPER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    if keeper.stdin is not None:
        with keeper.stdin:
            json.dump(plan, keeper.stdin)
    return keeper


def _await_answer(kind: Kind, url: str, plan: dict[str, Any], keeper: subprocess.Popen[str]) -> str:
    """The version, as soon as the server answers; CannotStart when it ends or takes too long."""
    deadline = time.monotonic() + kind.patience
    while time.monotonic() < deadline:
        if keeper.poll() is not None:
            raise _failure(kind, plan, "ended")
        with suppress(NoAnswer):
            return kind.answer(url)
        time.sleep(0.05)
    failure = _failure(kind, plan, f"did not answer within {kind.patience:.0f} s")
    keeper.terminate()
    keeper.wait(30)
    raise failure


def _failure(kind: Kind, plan: dict[str, Any], what: str) -> CannotStart:
    log = Path(plan["log_file"])
    tail = log.read_text(errors="replace").strip()[-800:] if log.exists() else ""
    taken = "in use" in tail.lower() or "eaddrinuse" in tail.lower()
    return (_PortTaken if taken else CannotStart)(f"a private {kind.name} {what}: {tail or 'its log is empty'}")


def _executor(directory: Path, account: Account | None) -> Callable[[list[str]], None]:
    def execute(command: list[str]) -> None:
        _hand_over(directory, account)
        as_user: dict[str, Any] = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
        done = subprocess.run(
            command,
            cwd=directory,
            env=_environment(directory),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            **as_user,
        )
        if done.returncode != 0:
            tail = (done.stderr or done.stdout).strip()[-800:]
            raise CannotStart(f"{Path(command[0]).name} failed: {tail}")

    return execute


def _hand_over(directory: Path, account: Account | None) -> None:
    """Give the folder and what lies in it to the account that will run the server."""
    if account is None:
        return
    for path in [directory, *directory.iterdir()]:
        os.chown(path, account.uid, account.gid)


def _environment(directory: Path) -> dict[str, str]:
    """Nothing of the caller's settings reaches a private server but where programs lie."""
    path = os.environ.get("PATH", os.defpath)
    return {
        "HOME": str(directory),
        "LC_ALL": "C",
        "PATH": f"{path}:/usr/sbin:/sbin",
        "TMPDIR": str(directory),
    }


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
