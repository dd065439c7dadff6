"""Clientes and propostas under fire: many clients, the same keys at once, workers killed meanwhile.

A real `umavez serve` with two workers. Each client sends every key again and again in its own order; a request
that gets no answer is sent again with the same key, as a real client would. Afterwards the tables are counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg

from chaos import Report, Setting, Trial

CLIENTS, REPEATS = 64, 5
FIXED = ("id", "nome", "email", "documento", "idempotencia_key")


@dataclass
class Answers:
    """What came back: bodies by key, statuses, and requests that got no answer."""

    bodies: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    created: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    replayed: int = 0
    unanswered: int = 0
    wrong: list[str] = field(default_factory=list)


def under_fire(setting: Setting) -> Report:
    """`count` keys from 64 clients, 5 times each, while workers are killed; one row per key, one answer per key."""
    report = Report(done=setting.count)
    with serving(setting) as (address, supervisor):
        answers = asyncio.run(_storm(setting, address, supervisor, report))
    for problem in answers.wrong:
        report.blame(problem)
    for key, bodies in answers.bodies.items():
        if len(bodies) != 1:
            report.blame(f"{key} was answered in {len(bodies)} ways")
        if answers.created[key] > 1:
            report.blame(f"{key} was created {answers.created[key]} times")
    rows, distinct = counted(setting.url)
    if (rows, distinct) != (setting.count, setting.count):
        report.blame(f"{rows} rows with {distinct} keys for {setting.count} keys")
    report.sometimes["replays"] += answers.replayed
    report.sometimes["unanswered"] += answers.unanswered
    return report


async def _storm(setting: Setting, address: str, supervisor: int, report: Report) -> Answers:
    answers = Answers()
    keys = [f"client-{setting.seed}-{number}" for number in range(setting.count)]
    work = [(key, repeat) for key in keys for repeat in range(REPEATS)]
    random.Random(setting.seed).shuffle(work)
    async with httpx.AsyncClient(base_url=address, limits=httpx.Limits(max_connections=CLIENTS), timeout=60) as client:
        queue = iter(work)
        killer = asyncio.create_task(_kill_workers(setting.seed, supervisor, report))
        await asyncio.gather(*(_client(client, queue, answers, setting) for _ in range(CLIENTS)))
        killer.cancel()
    return answers


async def _client(client: httpx.AsyncClient, queue: Iterator[tuple[str, int]], answers: Answers, at: Setting) -> None:
    for key, _ in queue:
        body: dict[str, object] = {"nome": f"Nome {key}", "email": f"{key}@example.com", "documento": None}
        answer = await _answered(client, key, body, answers)
        if answer.status_code not in (200, 201):
            answers.wrong.append(f"{key}: {answer.status_code} {answer.text[:200]}")
            continue
        answers.created[key] += answer.status_code == 201
        answers.replayed += "idempotent-replayed" in answer.headers
        shown = answer.json()
        answers.bodies[key].add(json.dumps([shown[name] for name in FIXED]))
        at.advance(len(answers.bodies))


async def _answered(
    client: httpx.AsyncClient, key: str, body: dict[str, str | None], answers: Answers
) -> httpx.Response:
    for _ in range(200):
        try:
            return await client.post("/api/v1/clientes", json=body, headers={"Idempotency-Key": key})
        except httpx.TransportError:
            # A worker died with the request in hand: nobody knows, so the same key is sent again.
            answers.unanswered += 1
            await asyncio.sleep(0.05)
    raise TimeoutError(f"{key} was never answered")


async def _kill_workers(seed: int, supervisor: int, report: Report) -> None:
    chance = random.Random(seed + 1)
    while True:
        await asyncio.sleep(chance.uniform(0.3, 0.8))
        workers = children(supervisor)
        if len(workers) > 1:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(workers), signal.SIGKILL)
                report.sometimes["workers killed"] += 1


def children(supervisor: int) -> list[int]:
    """The server's worker processes; not the resource tracker that Python starts beside them."""
    found = []
    for number in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        with suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{number}/cmdline").read_bytes():
                found.append(int(number))
    return found


@contextmanager
def serving(setting: Setting) -> Iterator[tuple[str, int]]:
    """A real server on the trial's database: its address and its supervisor's process id."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = (setting.folder / "server.log").open("wb")
    command = [str(Path(sys.executable).parent / "umavez"), "serve", "--workers", "2", "--port", str(port)]
    server = subprocess.Popen([*command, "--database", setting.url], stdout=log, stderr=log, cwd=setting.folder)
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


def counted(url: str) -> tuple[int, int]:
    """Rows in clientes, and distinct keys among them."""
    sql = "SELECT count(*), count(DISTINCT idempotencia_key) FROM clientes WHERE idempotencia_key LIKE 'client-%'"
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0])
        try:
            row = connection.execute(sql).fetchone()
        finally:
            connection.close()
    else:
        with psycopg.connect(url) as server:
            row = server.execute(sql).fetchone() or (0, 0)
    return row[0], row[1]


TRIALS = (
    Trial(
        "propostas under fire",
        under_fire,
        backends=("sqlite", "postgres"),
        short=10,
        long=500,
        sometimes=("replays", "workers killed"),
    ),
)
