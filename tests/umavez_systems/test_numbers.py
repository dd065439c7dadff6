"""Numbers, nesting and size of what strangers send: refused at once by a real server, whose memory stays as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from umavez_systems.server import prepare
from umavez_systems.settings import Settings

PROPOSTAS = "/api/v1/propostas"
SUBMETER = "/api/v1/propostas/1/submeter"
RIDE = "/api/governance/ride/request"
PROGRAM = """
import socket, sys, uvicorn
from umavez_systems.server import create_app
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
config = uvicorn.Config(create_app(), log_level="warning", access_log=False)
uvicorn.Server(config).run(sockets=[listener])
"""
PROBES = [
    (PROPOSTAS, '{"cliente_id":1e9999999999,"valor":1}'),
    (PROPOSTAS, '{"cliente_id":1e99999999999,"valor":1}'),
    (PROPOSTAS, '{"cliente_id":1e99999999,"valor":1}'),
    (PROPOSTAS, '{"cliente_id":1,"valor":1e99999999999}'),
    (PROPOSTAS, '{"cliente_id":1e99999999999999999999,"valor":1}'),
    (PROPOSTAS, '{"cliente_id":' + "9" * 400_000 + ',"valor":1}'),
    (SUBMETER, '{"versao":1e999999999}'),
    (SUBMETER, '{"versao":-1E+999999999}'),
    (RIDE, '{"passengerId":"a","x":1e9999999999}'),
    (RIDE, '{"passengerId":"a","x":[' + "1e999999999," * 5_000 + "1]}"),
    (RIDE, '{"passengerId":"a","x":' + "[" * 20_000 + "]" * 20_000 + "}"),
    ("/api/governance/drivers/positions", '{"positions":[{"id":"a","lat":1e9999999999,"lng":1}]}'),
    ("/api/governance/ride/confirmation/status", '{"passengerId":1e9999999999,"confirmationToken":"a"}'),
    ("/api/v1/submit_claim", '{"processInstanceId":"a","activityId":"b","claimData":{"x":1e9999999999}}'),
    ("/api/v1/processos", '{"claimData":{"guias":[{"valor":1e9999999999}]}}'),
    ("/api/v1/idempotency_records/a/resolve", '{"happened":1e9999999999,"reason":"r"}'),
]


class Running(NamedTuple):
    """A server in a process of its own."""

    client: httpx.Client
    pid: int

    def megabytes(self) -> float:
        """The most memory that the process ever had."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@pytest.fixture
def server(database: str) -> Iterator[Running]:
    prepare(Settings(database=database))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "UMAVEZ_DATABASE": database},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            yield Running(client, process.pid)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_no_number_stops_a_worker_or_fills_its_memory(server: Running) -> None:
    client = server.client
    client.post("/api/v1/clientes", json={"nome": "a", "email": "a@b"})
    assert client.post(PROPOSTAS, json={"cliente_id": 1, "valor": 1}).status_code == 201
    client.post(RIDE, json={"passengerId": "a"})
    before = server.megabytes()
    slowest = 0.0

    for path, body in PROBES:
        began = time.perf_counter()
        refused = client.post(path, content=body, headers={"Content-Type": "application/json"})
        slowest = max(slowest, time.perf_counter() - began)
        assert (refused.status_code, refused.headers["content-type"]) == (400, "application/problem+json"), path
        assert "O JSON tem" in refused.json()["detail"]
        assert client.get("/health").json() == {"status": "ok"}

    assert slowest < 2.0
    assert server.megabytes() - before < 60
    assert client.get("/api/v1/propostas/1").json()["versao"] == 1
