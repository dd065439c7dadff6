"""The server itself: health, metrics, the start page, and what it refuses to do."""

from __future__ import annotations

import asyncio
import contextlib
import html
import inspect
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
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from umavez_systems import command as serve
from umavez_systems.fiscal.simulador import keeper
from umavez_systems.logs import Spans
from umavez_systems.settings import Settings

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
UMAVEZ = Path(sys.executable).parent / "umavez"
ROOT = Path(__file__).parents[2]


def test_health_readiness_and_the_schema(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    paths = client.get("/openapi.json").json()["paths"]
    assert paths["/api/v1/clientes"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert paths["/api/v1/propostas/{number}/submeter"]["post"]


def test_the_schema_takes_a_key_in_both_of_its_forms(client: httpx.Client) -> None:
    (key,) = client.get("/openapi.json").json()["components"]["parameters"].values()
    assert key["name"] == "Idempotency-Key"
    for sent, fits in (("k-1", True), ('"k-1"', True), ("k,1", False), ('"k', False), ("x" * 256, False)):
        assert bool(re.search(key["schema"]["pattern"], sent)) is fits, sent


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


def test_answers_to_requests_with_a_key_are_counted_in_a_word(client: httpx.Client) -> None:
    client.post("/api/v1/clientes", json={"nome": "a", "email": "a@b"})
    client.post("/api/v1/propostas", json={"cliente_id": 1, "valor": 1})
    for version in (1, 1, 2):
        client.post("/api/v1/propostas/1/submeter", json={"versao": version}, headers={"Idempotency-Key": "k"})
    client.post("/api/v1/propostas/1/submeter", json={"versao": 1}, headers={"Idempotency-Key": "k" * 300})
    client.post("/nada", headers={"Idempotency-Key": "k"})

    line = r'umavez_http_answers_total{answer="([^"]*)",operation="([^"]*)"} ([0-9.]+)'
    found = {(answer, route): float(times) for answer, route, times in re.findall(line, client.get("/metrics").text)}
    (name,) = {route for answer, route in found if answer == "first"}
    assert found == {("first", name): 1, ("replayed", name): 2, ("key-invalid", name): 1, ("404", "other"): 1}


def test_x_05_metrics_tell_of_what_stands_in_the_store(client: httpx.Client) -> None:
    text = client.get("/metrics").text

    assert "umavez_store_up 1.0" in text
    assert "umavez_oldest_unknown_seconds 0.0" in text


def test_x_05_every_worker_tells_the_counters_of_all(tmp_path: Path) -> None:
    words = [UMAVEZ, "serve", "--port", "0", "--workers", "2"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("umavez serves ").strip()
        try:
            _eventually_by_both(address)
            httpx.post(f"{address}/api/v1/clientes", json={"nome": "a", "email": "a@b"}, timeout=60)
            httpx.post(f"{address}/api/v1/propostas", json={"cliente_id": 1, "valor": 1}, timeout=60)
            for _ in range(8):
                # A connection each, so that both workers take some.
                path = f"{address}/api/v1/propostas/1/submeter"
                httpx.post(path, json={"versao": 1}, headers={"Idempotency-Key": "k"}, timeout=60)
            seen = {_counted(httpx.get(f"{address}/metrics", timeout=60).text) for _ in range(12)}
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)
    assert seen == {(1.0, 7.0)}


def _counted(text: str) -> tuple[float, ...]:
    line = r'umavez_events_total{kind="%s",operation="submeter_proposta"} ([0-9.]+)'
    return tuple(sum(map(float, re.findall(line % kind, text))) for kind in ("succeeded", "replayed"))


def _eventually_by_both(address: str) -> None:
    """Both workers import what they need at their own pace; the counters are those of whoever is there."""
    for _ in range(20):
        assert httpx.get(f"{address}/health", timeout=60).status_code == 200


def exported() -> InMemorySpanExporter:
    """What is recorded from now on."""
    exporter = InMemorySpanExporter()
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        # Once for the whole process: the library takes no second one.
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


def test_a_span_of_a_request_holds_no_word_of_its_error_and_no_method_of_a_stranger() -> None:
    exporter = exported()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            raise ValueError("Key (cpf)=(123.456.789-09) already exists")
        await send({"type": "http.response.start", "status": 503})

    async def send(_: Any) -> None:
        """Nowhere."""

    async def ask(method: str) -> None:
        with contextlib.suppress(ValueError):
            await Spans(app)({"type": "http", "method": method, "headers": []}, None, send)  # type: ignore[arg-type]  # not asked

    asyncio.run(ask("POST"))
    asyncio.run(ask("MADE-UP-123"))
    failed, strange = exporter.get_finished_spans()
    assert "123" not in str((dict(failed.attributes or {}), failed.events, failed.status.description))
    assert (failed.status.status_code, (failed.attributes or {})["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert (strange.name, (strange.attributes or {})["http.request.method"]) == ("HTTP", "_OTHER")
    assert (strange.status.status_code, (strange.attributes or {})["error.type"]) == (StatusCode.ERROR, "503")


def test_x_05_a_request_is_a_span_and_so_is_the_attempt_inside_it(client: httpx.Client) -> None:
    exporter = exported()
    client.post("/api/v1/clientes", json={"nome": "a", "email": "a@b"})
    client.post("/api/v1/propostas", json={"cliente_id": 1, "valor": 1})
    caller = {"traceparent": f"00-{TRACE:032x}-b7ad6b7169203331-01"}
    headers = {"Idempotency-Key": "k", **caller}
    client.post("/api/v1/propostas/1/submeter", json={"versao": 1}, headers=headers)

    span = exporter.get_finished_spans()[-1]
    assert span.name == "POST /api/v1/propostas/{number}/submeter"
    assert (span.attributes or {})["http.response.status_code"] == 200
    # Frameworks may put spans of their own below it; the caller's trace holds them all.
    told = [each for each in exporter.get_finished_spans() if each.context and each.context.trace_id == TRACE]
    assert span in told
    attempt = next(each for each in told if each.name == "umavez submeter_proposta")
    assert (attempt.attributes or {})["umavez.outcome"] == "succeeded"


def test_metrics_are_closed_where_the_systems_are(database: str, serving: Any) -> None:
    with serving(Settings(database=database, api_keys="ana:0123456789abcdef")) as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"Authorization": "Bearer 0123456789abcdef"}).status_code == 200


FROZEN = """
import asyncio, gc
from umavez_systems.server import create_app, create_served_app, prepare
from umavez_systems.settings import Settings

async def frozen(app):
    async with app.router.lifespan_context(app):
        return gc.get_freeze_count()

prepare(Settings())
print(asyncio.run(frozen(create_app())), asyncio.run(frozen(create_served_app())))
"""


def test_full_garbage_collections_of_a_server_do_not_look_at_what_stays(tmp_path: Path) -> None:
    """They held the event loop, and /health with it, for longer than anything else."""
    words = [sys.executable, "-c", FROZEN]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=True, timeout=120)
    embedded, served = map(int, done.stdout.split())
    assert embedded == 0, "another program's objects are its own"
    assert served > 10_000
    assert "umavez_systems.server:create_served_app" in inspect.getsource(serve)


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


def test_every_command_on_the_start_page_works_as_printed(
    database: str, portal: str, serving: Any, tmp_path: Path
) -> None:
    with serving(Settings(database=database, portal_url=portal, fiscal_dir=str(tmp_path / "fiscal"))) as client:
        run_start_page(client)
    found = keeper.em_pe(tmp_path / "fiscal")
    assert found is not None, "the page tries the authorities"
    keeper.parar(found)  # it would end with this process, which goes on


@pytest.mark.parametrize("name", ["README.md", "README.pt-BR.md"])
def test_the_request_of_the_readme_is_made_once_and_then_replayed(client: httpx.Client, name: str) -> None:
    (command,) = re.findall(r"^curl .*?(?=^```)", (ROOT / name).read_text(), re.DOTALL | re.MULTILINE)
    here = command.replace("http://127.0.0.1:8000", f"http://{client.base_url.host}:{client.base_url.port}")
    assert here != command
    words = ["bash", "-c", here]
    first, again = (subprocess.run(words, capture_output=True, text=True, check=True).stdout for _ in range(2))

    assert first.startswith("HTTP/1.1 201 Created")
    assert again.startswith("HTTP/1.1 200 OK")
    assert ("idempotent-replayed: true" in first, "idempotent-replayed: true" in again) == (False, True)
    assert first.partition("\n\n")[2] == again.partition("\n\n")[2] != ""


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


def test_an_address_that_is_taken_is_one_sentence_and_nothing_is_said_to_be_served(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [UMAVEZ, "serve", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60)

    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be listened on" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_is_said_to_be_served_takes_connections_already(tmp_path: Path, workers: str) -> None:
    words = [UMAVEZ, "serve", "--port", "0", "--workers", workers]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("umavez serves ").strip()
        try:
            # No second try: the connection is taken at once, and answered as soon as the application is ready.
            assert httpx.get(f"{address}/health", timeout=60).json() == {"status": "ok"}
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


@pytest.mark.postgres
def test_a_database_of_the_local_server_needs_no_host(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """postgresql:///loja, as the help has it: libpq knows where and as whom."""
    user, _, place = postgres_url.partition("://")[2].rpartition("@")
    monkeypatch.setenv("PGHOST", place.partition(":")[0])
    monkeypatch.setenv("PGPORT", place.partition(":")[2].partition("/")[0])
    monkeypatch.setenv("PGUSER", user.partition(":")[0])
    words = [UMAVEZ, "serve", "--port", "0", "--database", f"postgresql:///{place.partition('/')[2]}"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("umavez serves ").strip()
        try:
            assert httpx.get(f"{address}/ready", timeout=60).json() == {"status": "ready"}
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def test_serve_starts_from_nothing_and_stops_gracefully(tmp_path: Path) -> None:
    """X.02."""
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
