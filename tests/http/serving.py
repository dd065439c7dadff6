"""Starts real web servers with the apps of `apps.py`, and stops or kills them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVERS = {
    "uvicorn": ("uvicorn", "fastapi_app"),
    "gunicorn": ("gunicorn", "flask_app"),
    "django": ("gunicorn", "django_wsgi"),
    "django-async": ("uvicorn", "django_asgi"),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A web server in a process group of its own."""

    def __init__(self, kind: str, folder: Path, *, workers: int = 2, **settings: str) -> None:
        self._kind = kind
        self._workers = workers
        self.effects = folder / "effects"
        self.effects.touch()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._settings = settings
        self._log = folder / "server.log"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        program, factory = SERVERS[self._kind]
        module = f"tests.http.apps:{factory}"
        if program == "uvicorn":
            command = [sys.executable, "-m", "uvicorn", "--factory", module, "--port", str(self.port)]
            command += ["--workers", str(self._workers), "--log-level", "warning"]
        else:
            command = [sys.executable, "-m", "gunicorn", f"{module}()", "-b", f"127.0.0.1:{self.port}"]
            command += ["-w", str(self._workers), "--threads", "16", "--log-level", "warning"]
        environment = {**os.environ, **self._settings, "EFFECTS": str(self.effects)}
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self._await(process)
        return process

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"{self._kind} did not start: {self._log.read_text()[-2000:]}")

    @property
    def lines(self) -> list[str]:
        """The effects so far."""
        return self.effects.read_text().splitlines()

    def kill(self) -> None:
        """kill -9, the whole group: nothing in it gets to say a word."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.process = self._start()

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def serving(kind: str, folder: Path, **settings: str) -> Iterator[Server]:
    """A running server; stopped afterwards."""
    server = Server(kind, folder, **settings)
    try:
        yield server
    finally:
        server.stop()
