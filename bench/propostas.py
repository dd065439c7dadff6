"""What idempotency costs over HTTP: `POST /api/v1/clientes` against bare handlers, behind uvicorn, by wrk.

    python -m bench propostas [--quick]

Four servers side by side on one PostgreSQL database: ours, and a bare FastAPI application that does one INSERT
(or one SELECT by id) through psycopg and knows nothing of keys. Rounds are interleaved; ratios are of medians.
Needs wrk and a PostgreSQL server (UMAVEZ_TEST_POSTGRES, or the running one).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import psycopg

from bench import is_quick

CONNECTIONS = 32
SCRIPTS = {
    "ours first": ("POST", "/api/v1/clientes", "new"),
    "bare insert": ("POST", "/bare", "new"),
    "ours replay": ("POST", "/api/v1/clientes", "same"),
    "bare select": ("GET", "/bare/1", "none"),
}
TARGETS = (("ours first", "bare insert", 0.5), ("ours replay", "bare select", 0.6))
LUA = """
wrk.method = "{method}"
wrk.path = "{path}"
wrk.headers["Content-Type"] = "application/json"
local thread = 0
function setup(t) t:set("id", thread); thread = thread + 1 end
local n = 0
function request()
  n = n + 1
  local key = "{prefix}-" .. id .. "-" .. n
  if "{keys}" == "same" then key = "{prefix}-replayed" end
  if "{keys}" == "none" then return wrk.format("{method}", "{path}") end
  wrk.headers["Idempotency-Key"] = key
  return wrk.format("{method}", "{path}", nil,
    '{{"nome": "João Silva", "email": "' .. key .. '@example.com"}}')
end
"""
BARE = """
import contextlib, os
from fastapi import FastAPI
from pydantic import BaseModel
import psycopg_pool

class Cliente(BaseModel):
    nome: str
    email: str
    documento: str | None = None

@contextlib.asynccontextmanager
async def lifespan(app):
    app.state.pool = psycopg_pool.AsyncConnectionPool(
        os.environ["BARE_DATABASE"], min_size=4, max_size=18, open=False,
        kwargs={"autocommit": True, "prepare_threshold": 1})
    await app.state.pool.open()
    yield
    await app.state.pool.close()

app = FastAPI(lifespan=lifespan)

@app.post("/bare", status_code=201)
async def insert(c: Cliente):
    async with app.state.pool.connection() as connection:
        cursor = await connection.execute(
            "INSERT INTO clientes (nome, email, documento) VALUES (%s, %s, %s) RETURNING id, nome, email, documento",
            (c.nome, c.email, c.documento))
        row = await cursor.fetchone()
    return {"id": row[0], "nome": row[1], "email": row[2], "documento": row[3]}

@app.get("/bare/{number}")
async def select(number: int):
    async with app.state.pool.connection() as connection:
        cursor = await connection.execute("SELECT id, nome, email, documento FROM clientes WHERE id = %s", (number,))
        row = await cursor.fetchone()
    return {"id": row[0], "nome": row[1], "email": row[2], "documento": row[3]}
"""


def main(words: list[str]) -> int:
    """Measure, print the table, keep it as JSON; returns 1 if a target was missed."""
    quick = is_quick(words, __doc__)
    if shutil.which("wrk") is None:
        print("This needs wrk: apt install wrk.", file=sys.stderr)
        return 1
    rounds, seconds = (3, 2) if quick else (5, 5)
    admin = os.environ.get("UMAVEZ_TEST_POSTGRES", "postgresql://127.0.0.1:5432/postgres")
    name = f"umavez_bench_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            return measured(f"{admin.rpartition('/')[0]}/{name}", rounds, seconds)
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def measured(url: str, rounds: int, seconds: int) -> int:
    """Start both servers, take turns, and judge."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bare.py").write_text(BARE)
        ports = {"ours": free_port(), "bare": free_port()}
        servers = [
            start(["umavez", "serve", "--database", url, "--port", str(ports["ours"])], folder, {}),
            start(
                ["uvicorn", "bare:app", "--port", str(ports["bare"]), "--log-level", "warning"],
                folder,
                {"BARE_DATABASE": url, "PYTHONPATH": folder},
            ),
        ]
        try:
            for port, path in ((ports["ours"], "/ready"), (ports["bare"], "/openapi.json")):
                await_answer(f"http://127.0.0.1:{port}{path}")
            rates = taken(ports, folder, rounds, seconds)
        finally:
            for server in servers:
                server.terminate()
                server.wait(30)
    return judged(rates, rounds, seconds)


def taken(ports: dict[str, int], folder: str, rounds: int, seconds: int) -> dict[str, list[float]]:
    """Requests per second of each subject, in turns. Every answer must be a success."""
    rates: dict[str, list[float]] = {name: [] for name in SCRIPTS}
    headers = {"Idempotency-Key": "seed-replayed"}
    body = {"nome": "João Silva", "email": "seed@example.com", "documento": "123.456.789-09"}
    httpx.post(f"http://127.0.0.1:{ports['ours']}/api/v1/clientes", json=body, headers=headers)
    for turn in range(rounds):
        for name, (method, path, keys) in SCRIPTS.items():
            prefix = "seed" if keys == "same" else uuid.uuid4().hex[:12]
            script = Path(folder) / "wrk.lua"
            script.write_text(LUA.format(method=method, path=path, keys=keys, prefix=prefix))
            port = ports["ours" if name.startswith("ours") else "bare"]
            rates[name].append(wrk(script, port, seconds))
        print(f"round {turn + 1}/{rounds}: " + "  ".join(f"{name} {rate[-1]:,.0f}/s" for name, rate in rates.items()))
    return rates


def wrk(script: Path, port: int, seconds: int) -> float:
    """The rate of one run. Raises when any answer was not a success."""
    command = ["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script), f"http://127.0.0.1:{port}"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in output:
        raise RuntimeError(output)
    return float(next(line.split()[1] for line in output.splitlines() if "Requests/sec" in line))


def judged(rates: dict[str, list[float]], rounds: int, seconds: int) -> int:
    """Print the table; keep it; 1 if a target was missed."""
    rows: list[dict[str, Any]] = []
    for ours, bare, target in TARGETS:
        ratio = statistics.median(rates[ours]) / statistics.median(rates[bare])
        met = ratio >= target
        rows.append({"subject": ours, "limit": bare, "ratio": round(ratio, 2), "target": target, "met": met})
        print(f"{ours:12} / {bare:12} = {ratio:.2f}  target {target}  {'met' if met else 'MISSED'}")
    result = {"connections": CONNECTIONS, "rounds": rounds, "seconds": seconds, "rates": rates, "ratios": rows}
    (Path(__file__).parent / "results" / "propostas.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(row["met"] for row in rows) else 1


def start(command: list[str], folder: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A program of this virtualenv, in `folder`."""
    program = str(Path(sys.executable).parent / command[0])
    return subprocess.Popen([program, *command[1:]], cwd=folder, env={**os.environ, **environment})


def free_port() -> int:
    """A port nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def await_answer(address: str) -> None:
    """Wait for a server, at most a minute."""
    deadline = time.monotonic() + 60
    while True:
        try:
            if httpx.get(address, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
