"""The server itself: health, metrics, the start page, and what it refuses to do."""

from __future__ import annotations

import html
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from umavez_systems.settings import Settings

UMAVEZ = Path(sys.executable).parent / "umavez"


def test_health_readiness_and_the_schema(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    paths = client.get("/openapi.json").json()["paths"]
    assert paths["/api/v1/clientes"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert paths["/api/v1/propostas/{number}/submeter"]["post"]


def test_an_unknown_path_is_a_problem_document(client: httpx.Client) -> None:
    refused = client.get("/nada")

    assert (refused.status_code, refused.headers["content-type"]) == (404, "application/problem+json")


def test_metrics_count_first_calls_and_replays(client: httpx.Client) -> None:
    client.post("/api/v1/clientes", json={"nome": "a", "email": "a@b"})
    client.post("/api/v1/propostas", json={"cliente_id": 1, "valor": 1})
    for _ in range(2):
        client.post("/api/v1/propostas/1/submeter", json={"versao": 1}, headers={"Idempotency-Key": "k"})

    text = client.get("/metrics").text

    assert 'umavez_events_total{kind="succeeded",operation="submeter_proposta"} 1.0' in text
    assert 'umavez_events_total{kind="replayed",operation="submeter_proposta"} 1.0' in text


def test_metrics_are_closed_where_the_systems_are(database: str, serving: Any) -> None:
    with serving(Settings(database=database, api_keys="ana:0123456789abcdef")) as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"Authorization": "Bearer 0123456789abcdef"}).status_code == 200


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[str]:
    """The simulated payer that the start page asks to be started first, in a process of its own."""
    words = [UMAVEZ, "processos", "portal", "--port", "0", "--database", str(tmp_path / "portal.db")]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.communicate()


def test_every_command_on_the_start_page_works_as_printed(database: str, portal: str, serving: Any) -> None:
    with serving(Settings(database=database, portal_url=portal)) as client:
        run_start_page(client)


def run_start_page(client: httpx.Client) -> None:
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    address = f"http://{client.base_url.host}:{client.base_url.port}"
    commands = re.findall(r"<code>(curl .*?)</code>", page.text, re.DOTALL)
    assert len(commands) >= 3
    for block in commands:
        for command in block.replace("\\\n", " ").split("\n\n"):
            assert address in command
            text = html.unescape(command)
            done = subprocess.run(["bash", "-c", f"{text} -s -f"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--host", "0.0.0.0"], "needs UMAVEZ_API_KEYS"),  # noqa: S104  # that is what must be refused
        (["--database", "oracle://x:hunter2@y"], "sqlite:///file.db or postgresql"),
        (["--port", "99999"], "port"),
    ],
)
def test_a_wrong_setting_is_one_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    done = subprocess.run([UMAVEZ, "serve", *words], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr


def test_serve_starts_from_nothing_and_stops_gracefully(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [UMAVEZ, "serve", "--port", str(port)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/ready")
                break
            except httpx.TransportError:
                time.sleep(0.05)
        else:
            pytest.fail("the server did not start")
        assert answer.json() == {"status": "ready"}
        assert (tmp_path / "umavez.db").exists()
        server.send_signal(signal.SIGTERM)
        output, _ = server.communicate(timeout=30)
    finally:
        server.kill()
    assert "everyone on this machine, as 'local'" in output
    assert "Traceback" not in output
