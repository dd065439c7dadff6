"""A portal that answers whatever it likes: each answer is taken within bounds, or counts as none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

import pytest

from tests.umavez_systems.processos.conftest import claim
from tests.umavez_systems.processos.test_tiss import MORE, good, told
from umavez_systems.processos.contas.domain import Tipo, demonstrativo_of
from umavez_systems.processos.domain import lote_of
from umavez_systems.processos.portal.client import LONGEST_WAIT, HttpPortal
from umavez_systems.processos.ports import PortalOcupado, PortalSemResposta

LOTE = lote_of(claim())


class Strange(ThreadingHTTPServer):
    """Says the same to everybody."""

    daemon_threads = True
    status = 200
    body = b"{}"
    headers: Mapping[str, str] = MappingProxyType({})


class Says(BaseHTTPRequestHandler):
    server: Strange

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.status)
        for name, value in {"Content-Length": str(len(self.server.body)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        """Not to the terminal."""


@pytest.fixture
def strange() -> Iterator[tuple[Strange, HttpPortal]]:
    server = Strange(("127.0.0.1", 0), Says)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    portal = HttpPortal(f"http://127.0.0.1:{server.server_port}")
    try:
        yield server, portal
    finally:
        portal.close()
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.mark.parametrize("status", [200, 422])
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"protocolo": 1e999999999, "situacao": 1, "valor": "1", "referencia": "r"}',
        b'{"glosa": {"codigo": 1e999999999, "descricao": "d"}}',
        b'{"glosa": {"codigo": "1", "descricao": "\\ud800"}}',
        b'{"glosa": {"codigo": "1", "descricao": "\\u0000"}}',
        b'{"x": "' + b"y" * 2_000_000 + b'"}',
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_answer_that_cannot_be_read_is_none(strange: tuple[Strange, HttpPortal], status: int, body: bytes) -> None:
    server, portal = strange
    server.status, server.body = status, body

    with pytest.raises(PortalSemResposta):
        portal.submit(LOTE, "r")


@pytest.mark.parametrize(("text", "wait"), [("7", 7.0), ("9" * 5000, LONGEST_WAIT), ("\xb2", 1.0), ("soon", 1.0)])
def test_a_portal_puts_off_for_a_day_at_most(strange: tuple[Strange, HttpPortal], text: str, wait: float) -> None:
    server, portal = strange
    server.status, server.headers = 429, {"Retry-After": text}

    with pytest.raises(PortalOcupado) as busy:
        portal.submit(LOTE, "r")
    assert busy.value.retry_after == wait


def test_a_value_written_as_a_number_is_taken_as_it_is_written(strange: tuple[Strange, HttpPortal]) -> None:
    server, portal = strange
    server.body = b'{"protocolo": "P-1", "situacao": 1, "valor": 150.10, "referencia": "r"}'

    assert portal.submit(LOTE, "r").valor == "150.10"


@pytest.mark.parametrize("declared", ["UTF-8", "ISO-8859-1", "windows-1252", "utf-16", None])
@pytest.mark.parametrize("before", ["", "\ufeff"])
def test_a_demonstrativo_inside_json_is_read_whatever_encoding_it_declares(
    strange: tuple[Strange, HttpPortal], declared: str | None, before: str
) -> None:
    server, portal = strange
    xml = told(MORE, declared, "utf-8").decode()
    server.body = json.dumps({"xml": before + xml}).encode()

    found = portal.statement_of("326305", "CLM-000001", Tipo.ANALISE)
    assert found is not None
    assert demonstrativo_of(found) == demonstrativo_of(good())
