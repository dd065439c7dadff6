"""The limits: what a store gives to a C program, or a bare driver, that sends the same statements."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import psycopg

from bench.engine.bare import BODY, KEEP, LEASE
from bench.engine.load import RESULT, Measured, cpu_of
from bench.engine.servers import Servers
from umavez import Once
from umavez.stores.postgres import statements as postgres_sql

CLIENTS = (1, 8, 32, 128)
"""Numbers of clients at which the C tools are tried; from 32 callers on, umavez is held against their best."""

SETTLED = 5000
"""Records for pgbench's replays."""

SPACED = json.dumps(RESULT)
"""The value with spaces after its colons, which pgbench would else take for the beginning of its variables."""
PLAIN = "x" * len(BODY)
"""As long as the value; redis-benchmark repeats its command in the table that is read here, so no quotes."""

# What each parameter is in a first call. pgbench can send no NULL and make no text, so NULLs stand in the statement
# and digest, stamp and key are a random number of nineteen digits.
_CLAIM = {
    1: "0", 2: ":key", 3: "'bench'", 4: "'charge'", 5: ":key", 6: ":key", 7: "'PENDING'", 8: "1", 9: str(LEASE),
    14: "false",
}  # fmt: skip
_SETTLE = {
    1: "0", 2: ":key", 3: ":key", 4: "false", 5: "false", 6: ":done", 7: "'SUCCESS'", 8: "1", 10: str(KEEP),
    14: "true", 15: f"'{SPACED}'",
}  # fmt: skip


def _filled(statement: str, values: dict[int, str]) -> str:
    return re.sub(r"\$(\d+)", lambda match: values.get(int(match[1]), "NULL"), statement)


FIRST = (
    "\\set key random(1000000000000000000, 9000000000000000000)\n\\set done :key + 1\n"
    f"{_filled(postgres_sql.INSERT, _CLAIM)};\n{_filled(postgres_sql.UPDATE_PLAIN, _SETTLE)};\n"
)
REPLAY = f"\\set key random(1, {SETTLED})\n{_filled(postgres_sql.INSERT, _CLAIM)};\n"


class Pgbench:
    """pgbench -M prepared on a database with our schema, where a digest may have any length."""

    name = "pgbench, same statements"

    def __init__(self, servers: Servers, url: str) -> None:
        place = ["-h", "127.0.0.1", "-p", str(servers.port("postgres")), "-U", "postgres"]
        self._server = servers.pids["postgres"]
        self._command = ["pgbench", *place, "-n", "-M", "prepared"]
        self._database = url.rpartition("/")[2]
        self._scripts = {"first": servers.folder / "first.sql", "replay": servers.folder / "replay.sql"}
        self._scripts["first"].write_text(FIRST)
        self._scripts["replay"].write_text(REPLAY)
        with Once(url, scope="bench") as once:
            once.migrate()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "ALTER TABLE idempotency_records DROP CONSTRAINT idempotency_records_digest_check;"
                "INSERT INTO idempotency_records (digest, scope, operation_name, idempotency_key, stamp, fence, status,"
                " attempt, created_at, updated_at, expires_at, outcome_kept, result_data)"
                " SELECT number::text::bytea, 'bench', 'charge', number, number, 1, 'SUCCESS', 1, now(), now(),"
                f" now() + interval '1 day', true, '{BODY}' FROM generate_series(1, {SETTLED}) AS number"
            )

    def measure(self, op: str, clients: int, seconds: float) -> Measured:
        """The median of its seconds, without the first, in which clients connect and prepare."""
        lasts = 1 + max(1, round(seconds)) + clients // 64
        script = ["-f", str(self._scripts[op]), self._database]
        words = ["-c", str(clients), "-j", str(min(clients, 2)), "-T", str(lasts), "-P", "1", *script]
        process = subprocess.Popen(
            [*self._command, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        time.sleep(1.0)
        client, server = cpu_of(process.pid), cpu_of(self._server)
        time.sleep(lasts - 1.2)
        client, server = cpu_of(process.pid) - client, cpu_of(self._server) - server
        _, said = process.communicate()
        rates = [float(found) for found in re.findall(r"progress: .*? s, ([\d.]+) tps", said)]
        if process.returncode or not rates:
            raise RuntimeError(f"pgbench failed: {said.strip()[-300:]}")
        rate = statistics.median(rates[1:] or rates)
        done = max(rate * (lasts - 1.2), 1.0)
        return Measured(rate, client / done * 1e6, round(done), server / done * 1e6)


_COMMANDS = {
    "first": (["SET", "limit:__rand_int__", PLAIN, "NX"], ["SET", "limit:__rand_int__", PLAIN]),
    "replay": (["GET", "limit:__rand_int__"],),
}


class RedisBenchmark:
    """redis-benchmark without pipelining: SET NX and SET for a first call, GET for a replay."""

    name = "redis-benchmark, no pipelining"

    def __init__(self, servers: Servers) -> None:
        place = ["-h", "127.0.0.1", "-p", str(servers.port("redis"))]
        self._command = ["redis-benchmark", *place, "-r", "1000000", "--csv"]
        self._speed: dict[tuple[str, int], float] = {}

    def measure(self, op: str, clients: int, seconds: float) -> Measured:
        """A first call takes as long as its two commands one after the other. No CPU time: its runs are too short."""
        parts = [self._one(op, number, clients, seconds) for number in range(len(_COMMANDS[op]))]
        rate = 1 / sum(1 / part for part in parts)
        return Measured(rate, 0.0, round(rate * seconds))

    def _one(self, op: str, number: int, clients: int, seconds: float) -> float:
        # It counts requests, not time: the last rate tells how many fill the time.
        name = f"{op}{number}"
        requests = int(self._speed.get((name, clients), 4000.0 * min(clients, 8)) * seconds) or 1
        done = subprocess.run(
            [*self._command, "-c", str(clients), "-n", str(requests), *_COMMANDS[op][number]],
            capture_output=True,
            text=True,
            check=True,
        )
        rate = float(done.stdout.splitlines()[-1].split('","')[1].strip('"'))
        self._speed[name, clients] = rate
        return rate


def fsyncs(folder: Path, seconds: float) -> float:
    """Blocks of 8 kB written and synced to the disk, per second."""
    block, done = b"x" * 8192, 0
    with (folder / "fsync").open("wb", buffering=0) as file:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            file.seek(done % 1024 * 8192)
            file.write(block)
            os.fdatasync(file.fileno())
            done += 1
    return done / seconds


def absent(program: str) -> bool:
    """Whether a tool is missing."""
    return shutil.which(program) is None
