"""One test run: its servers are found once and shared by all of its processes."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers.discovery import Found, Missing, find, found_private, from_record, to_record
from tests.servers.kind import Kind, Occupied
from tests.servers.private import CannotStart, Private, start


class Run:
    """The servers of one test run, kept in a folder that its worker processes share.

    The process that made the folder is the owner: private servers end with it, whoever started them.
    """

    def __init__(self, directory: Path, owner: int) -> None:
        self.directory = directory
        self.owner = owner
        self._started: list[Private] = []

    @classmethod
    def begin(cls) -> Run:
        """A new run, owned by this process."""
        return cls(Path(tempfile.mkdtemp(prefix="umavez-run-")), os.getpid())

    def server(self, kind: Kind) -> Found | Missing:
        """The server of this kind; the first process to ask looks for it, the others wait and share."""
        record = self.directory / f"{kind.name}.json"
        with self._lock(kind.name):
            if record.exists():
                return from_record(json.loads(record.read_text()))
            server, private = find(kind, self.owner, self._lock("install"))
            if private:
                self._started.append(private)
            record.write_text(json.dumps(to_record(server)))
            return server

    def private(self, kind: Kind, why: str = "") -> Private:
        """A further private server that no one else of this run uses; CannotStart where it cannot be had."""
        programs = kind.locate()
        if programs is None:
            raise CannotStart(f"not all of these are installed: {', '.join(kind.programs)}")
        private = start(kind, programs, self.owner)
        self._started.append(private)
        if why:
            record = self.directory / f"{kind.name}-{secrets.token_hex(4)}.json"
            record.write_text(json.dumps(to_record(found_private(private, [why]))))
        return private

    @contextmanager
    def lend(self, kind: Kind, server: Found) -> Iterator[str]:
        """The URL of a fresh database on the server, or on a private one if the server has no room."""
        name = f"umavez_test_{secrets.token_hex(5)}"
        lent = kind.lend(server.url, name, private=server.keeper is not None)
        try:
            url = lent.__enter__()
        except Occupied as error:
            private = self.private(kind, f"{server} has no room: {error}")
            lent = kind.lend(private.url, name, private=True)
            url = lent.__enter__()
        try:
            yield url
        finally:
            lent.__exit__(None, None, None)

    def known(self) -> list[Found | Missing]:
        """Every server this run has looked for, in the order of their names."""
        records = sorted(self.directory.glob("*.json"))
        return [from_record(json.loads(record.read_text())) for record in records]

    def end(self) -> None:
        """Every private server is stopped and the folder is gone. Only the owner calls it."""
        for private in self._started:
            private.stop()
        for server in self.known():
            if isinstance(server, Found) and server.keeper:
                _end(server.keeper)
                shutil.rmtree(server.directory or "", ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        with (self.directory / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _end(keeper: int) -> None:
    """Stop a keeper that another process of the run started."""
    with suppress(ProcessLookupError):
        os.kill(keeper, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while _lives(keeper) and time.monotonic() < deadline:
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    """False for a process that is gone, or that has ended and only waits to be collected."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        os.kill(pid, 0)
        return stat.read_text().rpartition(")")[2].split()[0] != "Z" if stat.exists() else True
    except (ProcessLookupError, FileNotFoundError):
        return False
