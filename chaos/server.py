"""A real `umavez serve` under fire: two workers, killed one after the other, and what its clients were told."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg

from chaos import Report, Setting
from umavez.stores.sqlite.store import parsed


@dataclass
class Answers:
    """What came back: the different answers and the creations under each name, and requests without an answer."""

    told: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    created: Counter[str] = field(default_factory=Counter)
    replayed: int = 0
    unanswered: int = 0
    put_off: int = 0
    wrong: list[str] = field(default_factory=list)

    def judge(self, report: Report) -> None:
        """One name, one answer, at most one creation; nothing wrong in between."""
        for problem in self.wrong:
            report.blame(problem)
        for name, told in self.told.items():
            if len(told) != 1:
                report.blame(f"{name} was answered in {len(told)} ways")
            if self.created[name] > 1:
                report.blame(f"{name} was created {self.created[name]} times")
        report.sometimes["replays"] += self.replayed
        report.sometimes["unanswered"] += self.unanswered
        report.sometimes["put off"] += self.put_off


@contextmanager
def serving(setting: Setting) -> Iterator[tuple[str, int]]:
    """A real server on the trial's database: its address and its supervisor's process id."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = (setting.folder / "server.log").open("ab")
    command = [str(Path(sys.executable).parent / "umavez"), "serve", "--workers", "2", "--port", str(port)]
    # No driver of a storm accepts anything: offers that end would move while they are counted.
    environment = {**os.environ, "UMAVEZ_RIDE_OFFER_SECONDS": "0"}
    command += ["--database", setting.url]
    server = subprocess.Popen(command, stdout=log, stderr=log, cwd=setting.folder, env=environment)
    try:
        _await_ready(f"http://127.0.0.1:{port}", server)
        yield f"http://127.0.0.1:{port}", server.pid
    finally:
        server.terminate()
        try:
            server.wait(40)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


def _await_ready(address: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"{address}/ready", timeout=5).status_code == 200:
                return
        time.sleep(0.1)
    raise RuntimeError("the server did not become ready; see server.log in the trial's folder")


@asynccontextmanager
async def killing(supervisor: int, seed: int, pause: tuple[float, float], report: Report) -> AsyncIterator[None]:
    """Meanwhile a worker is killed after each random `pause`, unless it is the only one left."""
    killer = asyncio.create_task(_kill_workers(supervisor, random.Random(seed + 1), pause, report))
    try:
        yield
    finally:
        killer.cancel()
        await asyncio.gather(killer, return_exceptions=True)


async def _kill_workers(supervisor: int, chance: random.Random, pause: tuple[float, float], report: Report) -> None:
    while True:
        await asyncio.sleep(chance.uniform(*pause))
        workers = _workers(supervisor)
        if len(workers) > 1:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(workers), signal.SIGKILL)
                report.sometimes["workers killed"] += 1


def _workers(supervisor: int) -> list[int]:
    """The server's worker processes; not the resource tracker that Python starts beside them."""
    found = []
    for number in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        with suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{number}/cmdline").read_bytes():
                found.append(int(number))
    return found


def one_row(setting: Setting, sql: str) -> tuple[Any, ...]:
    """The first row of a query on the trial's database."""
    if setting.backend == "sqlite":
        with closing(sqlite3.connect(parsed(setting.url)[0])) as connection:
            return tuple(connection.execute(sql).fetchone())
    with psycopg.connect(setting.url) as server:
        return tuple(server.execute(sql.encode()).fetchone() or ())
