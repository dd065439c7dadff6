"""What clients send by mistake or malice ends in a 4xx that says in Portuguese what to change, never in a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.umavez_systems.conftest import served
from umavez_systems.complaints import complaint
from umavez_systems.documentos import valid_document
from umavez_systems.money import decimal_of
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

RIDES = "/api/governance"
RECORDS = "/api/v1/idempotency_records"
FISCAL = "/api/v1/fiscal"
ENGLISH = ("Input", "should", "Not Found", "Field required", "Method", "String", "Value", "valid ", "greater", "less")


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """One server for all probes of a database: a probe that harmed it would be seen by those after it."""
    if request.param == "sqlite":
        database = f"sqlite:///{tmp_path_factory.mktemp('input')}/systems.db"
    else:
        database = request.getfixturevalue("postgres_url")
    prepare(Settings(database=database))
    with served(Settings(database=database, portal_url="http://127.0.0.1:1")) as made:
        made.headers["Content-Type"] = "application/json"
        yield made


@pytest.fixture(scope="module")
def proposta(client: httpx.Client) -> str:
    cliente = client.post("/api/v1/clientes", json={"nome": "a", "email": "a@b"}).json()["id"]
    made = client.post("/api/v1/propostas", json={"cliente_id": cliente, "valor": 1})
    return f"/api/v1/propostas/{made.json()['id']}"


def refused(answer: httpx.Response, *statuses: int) -> None:
    """A 4xx as a problem document in Portuguese, and the server is as well as before."""
    assert answer.status_code in statuses, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    detail = answer.json()["detail"]
    assert detail
    assert not [word for word in ENGLISH if word in detail], detail


GETS = [
    (f"/api/v1/clientes?depois={10**25}", 422),
    (f"/api/v1/propostas?depois={10**25}", 422),
    (f"/api/v1/propostas?depois={2**31}", 422),
    ("/api/v1/propostas?depois=-1", 422),
    ("/api/v1/propostas?depois=%C2%B2", 422),
    ("/api/v1/propostas?limite=" + "9" * 5000, 422),
    ("/api/v1/propostas/%C2%B2", 422),
    ("/api/v1/propostas/1%00", 400),
    ("/api/v1/propostas?depois=1%00", 400),
    ("/nada", 404),
    ("/health%0A", 404),
    (f"{RECORDS}/%0A", 404),
    (f"{RECORDS}?older_than=inf", 422),
    (f"{RECORDS}?older_than=-inf", 422),
    (f"{RECORDS}?older_than=nan", 422),
    (f"{RECORDS}?older_than=1e300", 422),
    (f"{RECORDS}?older_than=1e9999999999", 422),
    (f"{RECORDS}?status=NADA", 422),
    (f"{RECORDS}?process_instance_id=a%00b", 400),
    (f"{RECORDS}/a%00b", 400),
    ("/api/v1/processos/a%00b", 400),
    ("/processos/a%00b", 400),
    ("/api/v1/processos?estado=ativo%0A", 422),
    (f"{RIDES}/rides/a%00b", 400),
    (f"{RIDES}/rides?passengerId=a%00b", 400),
    (f"{RIDES}/drivers/a%00", 400),
    (f"{RIDES}/drivers?after=%00", 400),
    (f"{RIDES}/ride/confirmation/audit?passengerId=%00", 400),
]


@pytest.mark.parametrize(("address", "status"), GETS, ids=lambda value: str(value)[:48])
def test_what_cannot_be_asked_is_refused(client: httpx.Client, address: str, status: int) -> None:
    refused(client.get(address), status)


def test_s2_texts_beyond_the_first_plane_of_unicode_are_texts(client: httpx.Client) -> None:
    """An emoji is two escapes in JSON, each of which would be half of something if it stood alone."""
    model = {"assunto": "\N{PARTY POPPER} Festa", "texto": "Ol\u00e1 \N{GRINNING FACE}"}
    assert client.put("/mailings/modelos/festa", json=model).status_code == 200
    wrong = client.put(
        "/mailings/modelos/festa",
        content=b'{"assunto": "\\ud83c", "texto": "x"}',
        headers={"Content-Type": "application/json"},
    )
    assert wrong.status_code in (400, 422)


@pytest.mark.parametrize("origin", ["http://[", "null", "http://elsewhere", "\xb2"], ids=repr)
def test_an_origin_that_is_none_is_refused_and_nothing_worse(client: httpx.Client, origin: str) -> None:
    headers = {"Origin": origin.encode("latin-1")}
    assert client.post("/mailings/supressao", content=b'{"emails": ["a@b"]}', headers=headers).status_code == 403


def test_a_flag_is_true_or_false_and_no_number(client: httpx.Client) -> None:
    driver = {"name": "d", "lat": 1, "lng": 1}
    assert client.put(f"{RIDES}/drivers/flag", json=driver).status_code in (200, 201)
    for value, status in ((0, 422), (1, 422), ("true", 422), (None, 422), (False, 200)):
        answer = client.put(f"{RIDES}/drivers/flag/availability", json={"available": value})
        assert answer.status_code == status, (value, answer.text)


def test_percent_signs_that_are_no_nul_pass(client: httpx.Client) -> None:
    assert client.get(f"{RIDES}/rides?passengerId=%2500").json() == {"items": []}


@pytest.mark.parametrize(
    ("version", "status"),
    [
        (b'"\xb2"', 400),
        (b'""', 400),
        (b"9" * 5000, 400),
        (b'"1', 400),
        (b"um", 400),
        (b'"1_0"', 412),
        (b'"-1"', 412),
        (b'"00000000011"', 412),
        (b'"9999999999"', 412),
    ],
    ids=lambda text: str(text)[:16],
)
def test_s0_an_if_match_that_is_no_tag_is_400_and_one_that_is_no_version_412(
    client: httpx.Client, proposta: str, version: bytes, status: int
) -> None:
    headers = {"If-Match": version, "Idempotency-Key": "k"}

    refused(client.post(f"{proposta}/submeter", content="{}", headers=headers), status)


BODIES = [
    ("/api/v1/clientes", '{"nome": "\\ud800", "email": "a@b"}', 422),
    ("/api/v1/clientes", '{"nome": "a\\u0000", "email": "a@b"}', 422),
    ("/api/v1/clientes", '{"nome": "a", "nome": "b", "email": "a@b"}', 400),
    ("/api/v1/clientes", '{"nome": "a", "email": "a@b\\n"}', 422),
    ("/api/v1/clientes", b'{"nome": "\xed\xa0\x80", "email": "a@b"}', 400),
    ("/api/v1/clientes", '{"nome": "a"}'.encode("utf-16"), 400),
    ("/api/v1/clientes", '{"nome": NaN, "email": "a@b"}', 400),
    ("/api/v1/clientes", "[" * 65 + "]" * 65, 400),
    ("/api/v1/clientes", '{"email": "a@b"}', 422),
    ("/api/v1/propostas", '{"cliente_id": 1e99, "valor": 1}', 422),
    ("/api/v1/propostas", '{"cliente_id": 1.5, "valor": 1}', 422),
    ("/api/v1/propostas", '{"cliente_id": 1, "valor": "1e999999999"}', 422),
    ("/api/v1/propostas", '{"cliente_id": 1, "valor": "1e-999999999"}', 422),
    ("/api/v1/propostas", '{"cliente_id": 1, "valor": 1e-99}', 422),
    ("/api/v1/propostas", '{"cliente_id": 1, "valor": "1_500"}', 422),
    ("/api/v1/propostas", '{"cliente_id": 1, "valor": "１５"}', 422),
    ("/api/v1/propostas", '{"cliente_id": 1, "valor": -0.0}', 422),
    ("/api/v1/propostas", '{"cliente_id": 1, "valor": "NaN"}', 422),
    (f"{RIDES}/ride/request", '{"passengerId": "p", "x": "\\ud800"}', 422),
    (f"{RIDES}/ride/request", '{"passengerId": "p", "x": [' + "1e99," * 20_000 + "1]}", 422),
    (f"{RIDES}/ride/request", '{"passengerId": "p", "price": 1e99}', 422),
    (f"{RIDES}/drivers/positions", '{"positions": [{"id": "a\\u0000", "lat": 1, "lng": 1}]}', 422),
    (f"{RIDES}/drivers/positions", '{"positions": [{"id": "a", "lat": 1e99, "lng": 1}]}', 422),
    (f"{RIDES}/drivers/positions", '{"positions": []}', 422),
    ("/mailings/supressao", '{"emails": ["\\ud800@b"]}', 422),
    ("/mailings/supressao", '{"emails": ["a\\u0000@b"]}', 422),
    ("/mailings/retornos", '{"tipo": "delivered\\n", "entrada": "x"}', 422),
    (f"{FISCAL}/organizacoes", '{"id": "x", "certificado": "\u00e9", "senha": "x"}', 422),
    (f"{FISCAL}/organizacoes", '{"id": "x", "certificado": "MII=", "senha": "\\ud800"}', 422),
    (f"{FISCAL}/documentos", '{"tipo": "NFE", "organizacao": "demo", "serie": 1e99, "itens": [{}]}', 422),
    (f"{FISCAL}/inutilizacoes", '{"organizacao": "demo", "tipo": "NFE", "serie": 1, "primeiro": 1e60}', 422),
    ("/api/v1/submit_claim", '{"processInstanceId": "\\ud800", "activityId": "b", "claimData": {}}', 422),
    ("/api/v1/submit_claim", '{"processInstanceId": "a\\u0000", "activityId": "b", "claimData": {}}', 422),
    ("/api/v1/submit_claim", '{"processInstanceId": "a", "activityId": "b", "claimData": []}', 422),
    (f"{RECORDS}/k/resolve", '{"happened": true, "result": {"a": "\\ud800"}, "reason": "r"}', 422),
    (f"{RECORDS}/k/resolve", '{"happened": "talvez", "reason": "r"}', 422),
]


@pytest.mark.parametrize(("path", "body", "status"), BODIES, ids=lambda value: str(value)[:60])
def test_what_cannot_be_taken_is_refused(client: httpx.Client, path: str, body: str | bytes, status: int) -> None:
    refused(client.post(path, content=body), status)


def test_refused_json_has_the_shape_that_ride_clients_read(client: httpx.Client) -> None:
    for body in ("{", '{"x": 1e999}', '{"passengerId": "\\u0000"}'):
        told = client.post(f"{RIDES}/ride/request", content=body).json()
        assert (told["success"], told["error"], told["shouldRetry"]) == (False, "invalid_request", False)
        assert told["message"] == told["detail"]


def test_communities_with_numbers_beyond_measure_are_refused(client: httpx.Client) -> None:
    for number, status in (("1e999999999", 400), ("1e99", 422), ("9" * 64, 422)):
        ring = f"[[0,0],[1,0],[1,{number}],[0,0]]"
        feature = (
            '{"type":"Feature","id":"c","properties":{},"geometry":{"type":"Polygon","coordinates":[' + ring + "]}}"
        )
        refused(client.put(f"{RIDES}/communities", content=feature), status)


def lote(**changed: Any) -> dict[str, Any]:
    guia = {
        "numeroGuiaPrestador": "G-1",
        "carteira": "1",
        "beneficiario": "M",
        "procedimento": "10101012",
        "valor": "1.00",
        "dataAtendimento": "2026-07-01",
    }
    names = {"operadora": "326305", "prestador": "2", "numeroLote": "L-1", "tipoGuia": "sp_sadt"}
    inside = {name: value for name, value in changed.items() if name in guia}
    outside = {name: value for name, value in changed.items() if name not in guia}
    return {**names, **outside, "guias": [{**guia, **inside}]}


@pytest.mark.parametrize(
    "changed",
    [
        {"operadora": "32630²"},
        {"operadora": "٣٢٦٣٠٥"},
        {"procedimento": "1010101²"},
        {"procedimento": "١٠١٠١٠١٢"},
        {"numeroLote": "L\n1"},
        {"dataAtendimento": "2026-W01-1"},
        {"dataAtendimento": "20260701"},
        {"dataAtendimento": "2026-02-30"},
        {"valor": "1e-999999999"},
        {"valor": "1_0"},
    ],
    ids=str,
)
def test_a_lote_that_the_payer_could_not_read_is_refused(client: httpx.Client, changed: dict[str, Any]) -> None:
    refused(client.post("/api/v1/processos", json={"claimData": lote(**changed)}), 422)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""},
        {"id": "x\n"},
        {"id": "x\r\nSet-Cookie: a=b"},
        {"prazo": "P1D\n"},
        {"prazo": "P١D"},
        {"prazo": "P"},
        {"prazo": "P" + "9" * 5000 + "D"},
    ],
    ids=str,
)
def test_a_process_is_refused_before_anything_is_submitted(client: httpx.Client, wrong: dict[str, str]) -> None:
    before = client.get("/api/v1/processos").json()

    refused(client.post("/api/v1/processos", json={"claimData": lote(), **wrong}), 422)
    assert client.get("/api/v1/processos").json() == before


def test_a_method_that_is_not_there_is_told_in_portuguese(client: httpx.Client) -> None:
    refused(client.delete("/api/v1/clientes"), 405)


def test_a_refused_method_is_told_with_every_method_of_its_address(client: httpx.Client) -> None:
    for method, path, taken in (
        ("DELETE", "/api/v1/clientes", "GET, POST"),
        ("DELETE", "/api/v1/clientes/1", "GET, PATCH, PUT"),
        ("PUT", "/api/v1/idempotency_records/a_b", "GET"),
        ("PUT", "/api/v1/idempotency_records/a/b", "GET"),
        ("PUT", "/api/v1/idempotency_records/a/b/resolve", "GET, POST"),
        ("PUT", "/mailings/supressao/a/b@example.com", "DELETE"),
        ("GET", "/mailings/retornos/dsn", "POST"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ):
        answer = client.request(method, path)

        refused(answer, 405)
        assert (path, answer.headers.get("allow")) == (path, taken)


def test_every_complaint_is_a_whole_sentence() -> None:
    assert complaint([{"loc": (), "type": "model_type"}]) == "corpo: deve ser um objeto."
    assert complaint([{"loc": ("a", 0), "type": "less_than_equal", "ctx": {"le": 5}}]) == "a.0: deve ser no máximo 5."
    assert complaint([{"loc": ("a",), "type": "enum", "ctx": {"expected": "'x' or 'y'"}}]).endswith("'x' ou 'y'.")
    assert complaint([{"loc": ("a",), "type": "of tomorrow"}]) == "a: não é válido."


@pytest.mark.parametrize(
    "value", ["", "+1", " 1", "1\n", "1.", ".5", "1e5", "١", "sNaN", "9" * 65, 1.5, True, None, []]
)
def test_only_digits_and_a_point_are_a_number(value: object) -> None:
    assert decimal_of(value) is None


@pytest.mark.parametrize("text", ["123.456.789-09", "12.ABC.345/01DE-35"])
def test_documents_in_other_digits_look_like_none(text: str) -> None:
    assert valid_document(text) is True
    assert valid_document(text.replace("3", "٣")) is None
