"""A portal that answers whatever it likes: each answer is taken within bounds, or counts as none."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.umavez_systems.processos.conftest import claim
from tests.umavez_systems.processos.test_tiss import MORE, good, told
from tests.umavez_systems.processos.worlds import World
from umavez import OutcomeUnknown
from umavez.cli.app import app
from umavez_systems.processos.attempts import Step
from umavez_systems.processos.contas.domain import Tipo, demonstrativo_of
from umavez_systems.processos.database import Reservas
from umavez_systems.processos.domain import Glosa, lote_of
from umavez_systems.processos.operations import Faturamento
from umavez_systems.processos.portal.client import LONGEST, LONGEST_WAIT, HttpPortal
from umavez_systems.processos.portal.simulator import FAULTS
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


RECEIPT = {"protocolo": "CLM-000001", "situacao": 1, "valor": "150.00", "referencia": "r"}
PAID = {"pagamento": "PAG-1", "protocolo": "CLM-000001", "valor": "150.00", "referencia": "r"}
APPEALED = {"recurso": "REC-1", "situacao": "em_analise", "valor": "50.00", "referencia": "r"}
ASKED: dict[str, tuple[Callable[[HttpPortal], object], dict[str, Any]]] = {
    "eligible": (lambda portal: portal.eligible("326305", "1"), {"elegivel": True}),
    "submit": (lambda portal: portal.submit(LOTE, "r"), RECEIPT),
    "protocol_of": (lambda portal: portal.protocol_of(LOTE.remessa), RECEIPT),
    "situation_of": (lambda portal: portal.situation_of("326305", "CLM-000001"), {"situacao": 3}),
    "pay": (lambda portal: portal.pay("326305", "CLM-000001", "150.00", "r"), PAID),
    "payment_of": (lambda portal: portal.payment_of("326305", "CLM-000001"), PAID),
    "statement_of": (lambda portal: portal.statement_of("326305", "CLM-000001", Tipo.ANALISE), {"xml": "<a/>"}),
    "appeal_of": (lambda portal: portal.appeal_of("326305", "CLM-000001", "R-1"), APPEALED),
}
NONE: dict[str, tuple[dict[str, Any], ...]] = {
    "payment_of": ({}, {"pagamento": None}),
    "appeal_of": ({}, {"recurso": None}),
    "statement_of": ({"xml": None},),
    "protocol_of": ({"situacao": 7},),
}
"""How a portal says that there is none."""


@pytest.mark.parametrize("verb", ASKED)
def test_half_an_answer_is_none_and_never_a_no(strange: tuple[Strange, HttpPortal], verb: str) -> None:
    """Taken for "there is none", it would be sent again; its null would be the id "None"."""
    server, portal = strange
    ask, whole = ASKED[verb]
    server.body = json.dumps(whole).encode()
    assert ask(portal)
    wrong: list[Any] = ["", " ", [], {}, "x" * 400]
    halves = [{"status": "processando"}, *({**whole, name: value} for name in whole for value in wrong)]
    halves += [{key: value for key, value in whole.items() if key != name} for name in whole if len(whole) > 1]
    halves += [{**whole, name: None} for name in whole if name not in ("referencia", "xml", "pagamento", "recurso")]
    if verb == "statement_of":  # what is in the text is read elsewhere
        halves = [half for half in halves if not isinstance(half.get("xml"), str)]
    for half in halves:
        server.body = json.dumps(half).encode()
        with pytest.raises(PortalSemResposta):
            pytest.fail(f"{half} was taken for {ask(portal)}")
    for nothing in NONE.get(verb, ()):
        server.body = json.dumps(nothing).encode()
        assert ask(portal) is None


@pytest.mark.parametrize(
    "glosa", [{"codigo": None, "descricao": "d"}, {"codigo": "", "descricao": "d"}, {"codigo": "1"}]
)
def test_a_refusal_without_its_code_is_no_final_one(strange: tuple[Strange, HttpPortal], glosa: dict[str, Any]) -> None:
    server, portal = strange
    server.status, server.body = 422, json.dumps({"glosa": glosa}).encode()

    with pytest.raises(PortalSemResposta):
        portal.submit(LOTE, "r")


def test_a_refusal_that_is_told_at_length_is_a_final_one(strange: tuple[Strange, HttpPortal]) -> None:
    """Not believed, it would leave the claim unknown for good."""
    server, portal = strange
    server.status, server.body = 422, json.dumps({"glosa": {"codigo": "1705", "descricao": "p" * 500}}).encode()

    with pytest.raises(Glosa) as told:
        portal.submit(LOTE, "r")
    assert (told.value.codigo, told.value.descricao) == ("1705", "p" * LONGEST)


class Astray(HttpPortal):
    """A portal that answers with something else than what it was asked for."""

    def __init__(self, changed: dict[str, str]) -> None:
        # Not the adapter's own __init__: this one needs no connections.
        self._changed = changed
        self._referencia = ""

    def _sent(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        self._referencia = content.get("referencia", self._referencia)
        return {**PAID, "situacao": 3, "referencia": self._referencia, **self._changed}


@pytest.mark.parametrize(
    ("operation", "changed"),
    [("submit", {"referencia": "outro"}), ("pay", {"referencia": "outro"}), ("pay", {"protocolo": "CLM-9"})],
)
def test_an_answer_about_something_else_leaves_what_was_sent_unknown(
    tmp_path: Path, operation: str, changed: dict[str, str]
) -> None:
    """It would be kept for good: the process would go on with somebody else's protocolo."""
    world = World(tmp_path)
    faturamento = Faturamento(world.store, Astray(changed), Reservas(world.database), terms=world.terms)
    step = Step("local", "i-1", "t")
    try:
        for _ in range(2):
            with pytest.raises((PortalSemResposta, OutcomeUnknown)):
                if operation == "submit":
                    faturamento.submit_claim(step, LOTE)
                else:
                    faturamento.process_payment(step, "326305", "CLM-000001", "150.00")
        (record,) = faturamento.records("local")
        assert record.settled is None
    finally:
        world.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", "lose_after=x"], "write lose_after=0.1 for one request in ten"),
        (["--rate", "lose_after"], "write lose_after=0.1 for one request in ten"),
        (["--rate", "lost=0.1"], "known are busy, "),
        (["--port", "99999"], "give a number up to 65535"),
        (["--hold", "-1"], "give a number up to 86400"),
        (["--port", "0", "--database", "/nowhere/portal.db"], "/nowhere/portal.db cannot hold the ledger"),
    ],
)
def test_the_command_says_in_a_sentence_what_it_cannot_begin_with(words: list[str], said: str) -> None:
    refused = CliRunner().invoke(app, ["processos", "portal", *words], prog_name="umavez")

    assert refused.exit_code == 2
    assert said in refused.stderr.splitlines()[-1]


def test_the_command_shows_its_own_options() -> None:
    told = CliRunner().invoke(app, ["processos", "portal", "--help"], prog_name="umavez")

    assert told.exit_code == 0
    assert all(f"  {fault} " in told.stdout for fault in FAULTS)
