"""Seed 000, line by line: every example of its §5 is sent as it stands and the answer compared."""

from __future__ import annotations

import json
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from httpx import Client, Response

from umavez_systems.propostas import database as tables
from umavez_systems.propostas.operations import Propostas
from umavez_systems.settings import Settings

JOAO = {"nome": "João Silva", "email": "joao@example.com", "documento": "123.456.789-00"}


def post(client: Client, path: str, body: Any, key: str | None = None, **headers: str) -> Response:
    if key is not None:
        headers["Idempotency-Key"] = key
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    return client.post(f"/api/v1{path}", content=content, headers={"Content-Type": "application/json", **headers})


def query(settings: Settings, sql: str) -> list[tuple[Any, ...]]:
    if settings.database.startswith("sqlite"):
        connection = sqlite3.connect(settings.database.removeprefix("sqlite:///"))
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()
    with psycopg.connect(settings.database) as server:
        return server.execute(sql.encode()).fetchall()


@pytest.fixture
def proposta(client: Client) -> Client:
    """A client of an application in which cliente 1 and proposta 1 exist."""
    assert post(client, "/clientes", JOAO, "client-001").status_code == 201
    assert post(client, "/propostas", '{"cliente_id": 1, "valor": 1500.00}', "proposta-001").status_code == 201
    return client


def test_s0_01_s0_02_creating_a_cliente_twice_with_one_key(client: Client) -> None:
    first = post(client, "/clientes", JOAO, "client-001")
    second = post(client, "/clientes", JOAO, "client-001")

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json() == {"id": 1, **JOAO, "idempotencia_key": "client-001"}
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"


def test_s0_02_another_body_under_the_same_key_gets_the_first_cliente(client: Client) -> None:
    post(client, "/clientes", JOAO, "client-001")

    other = post(client, "/clientes", {"nome": "Outra", "email": "outra@example.com"}, "client-001")
    strict = post(
        client, "/clientes", {"nome": "Outra", "email": "o@example.com"}, "client-001", Prefer="handling=strict"
    )

    assert (other.status_code, other.json()["nome"]) == (200, "João Silva")
    assert strict.status_code == 422
    assert strict.headers["content-type"] == "application/problem+json"
    assert strict.json()["type"].endswith("chave-reutilizada")


def test_s0_02_the_strict_rule_is_asked_for_as_rfc_7240_writes_it(client: Client) -> None:
    post(client, "/clientes", JOAO, "client-001")

    for sent, status in (
        (["handling=strict"], 422),
        (["Handling=Strict"], 422),
        (['handling = "strict"'], 422),
        (["respond-async, handling=strict; wait=10"], 422),
        (["respond-async", "handling=strict"], 422),
        (["handling=lenient, handling=strict"], 200),
        (["handling=strictly-not"], 200),
        (["x-handling=strict"], 200),
        (["handling"], 200),
    ):
        headers = [("Idempotency-Key", "client-001"), *(("Prefer", one) for one in sent)]
        again = client.post("/api/v1/clientes", json={**JOAO, "nome": "Outra"}, headers=headers)
        assert (sent, again.status_code) == (sent, status)


def test_s0_03_without_a_key_each_post_creates(client: Client, settings: Settings) -> None:
    for number in range(3):
        assert (
            post(client, "/clientes", {**JOAO, "email": f"j{number}@example.com", "documento": None}).status_code == 201
        )

    assert query(settings, "SELECT count(*) FROM clientes WHERE idempotencia_key IS NULL") == [(3,)]


def test_s0_04_the_key_is_looked_up_before_the_unique_email(client: Client) -> None:
    post(client, "/clientes", JOAO, "client-001")

    assert post(client, "/clientes", JOAO, "client-001").status_code == 200
    clash = post(client, "/clientes", JOAO, "client-002")
    assert clash.status_code == 409
    assert clash.json()["type"].endswith("email-em-uso")


def test_s0_04_a_used_key_answers_whatever_body_it_comes_with(proposta: Client) -> None:
    for body in ("{}", "{", '{"nome": ""}'):
        again = post(proposta, "/clientes", body, "client-001")
        assert (again.status_code, again.json()["nome"]) == (200, "João Silva")
        assert again.headers["idempotent-replayed"] == "true"
    assert post(proposta, "/propostas", "{}", "proposta-001").json()["versao"] == 1
    assert post(proposta, "/clientes", "{}", "client-001", Prefer="handling=strict").status_code == 422
    assert post(proposta, "/clientes", "{}", "client-unused").status_code == 422


def test_s0_05_s0_06_a_proposta_keeps_its_first_value_exactly(proposta: Client, settings: Settings) -> None:
    again = post(proposta, "/propostas", '{"cliente_id": 1, "valor": 2000.00}', "proposta-001")

    assert again.status_code == 200
    assert '"valor": 1500.00' in again.text
    assert again.json() == {
        "id": 1,
        "cliente_id": 1,
        "valor": 1500.00,
        "estado": "rascunho",
        "versao": 1,
        "idempotencia_key": "proposta-001",
    }
    assert Decimal(query(settings, "SELECT valor FROM propostas")[0][0]) == Decimal("1500.00")


@pytest.mark.parametrize("valor", ["0.10", "99999999.99", "0.30", "1234567.89", "7"])
def test_s0_06_values_are_never_floats(client: Client, valor: str) -> None:
    post(client, "/clientes", JOAO, "c")
    made = post(client, "/propostas", f'{{"cliente_id": 1, "valor": {valor}}}')

    assert f'"valor": {Decimal(valor):.2f}' in made.text


@pytest.mark.parametrize("valor", ["0.001", "-1", "100000000", "1e400", "true", "[]", "null", '"dez"', "NaN"])
def test_s0_06_a_value_that_does_not_fit_is_refused_not_rounded(client: Client, valor: str) -> None:
    post(client, "/clientes", JOAO, "c")

    refused = post(client, "/propostas", f'{{"cliente_id": 1, "valor": {valor}}}')

    assert refused.status_code in (400, 422)
    assert refused.headers["content-type"] == "application/problem+json"


def test_s0_07_s0_08_submitting_once(proposta: Client, settings: Settings) -> None:
    first = post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")
    second = post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")

    assert (first.status_code, first.json()) == (200, {"id": 1, "estado": "enviada", "versao": 2})
    assert (second.status_code, second.json()) == (200, {"id": 1, "estado": "enviada", "versao": 2})
    assert second.headers["idempotent-replayed"] == "true"
    rows = query(settings, "SELECT idempotencia_key, tipo_operacao, entidade_id, resultado FROM idempotencia_operacoes")
    assert [row[:3] for row in rows] == [("submit-001", "submeter_proposta", 1)]
    snapshot = json.loads(rows[0][3]) if isinstance(rows[0][3], str) else rows[0][3]
    assert (snapshot["estado"], snapshot["valor"], snapshot["versao"]) == ("enviada", "1500.00", 2)


def test_s0_09_a_replayed_submission_shows_the_proposta_as_it_is_now(proposta: Client) -> None:
    post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")
    post(proposta, "/propostas/1/aceitar", {"versao": 2}, "accept-001")

    again = post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")

    assert again.json() == {"id": 1, "estado": "aceita", "versao": 3}


def test_s0_10_one_key_serves_different_operations(proposta: Client, settings: Settings) -> None:
    for name, versao in (("submeter", 1), ("aceitar", 2)):
        assert post(proposta, f"/propostas/1/{name}", {"versao": versao}, "same-key").status_code == 200

    kinds = query(settings, "SELECT tipo_operacao FROM idempotencia_operacoes ORDER BY tipo_operacao")
    assert kinds == [("aceitar_proposta",), ("submeter_proposta",)]


def test_a_submission_key_is_bound_to_its_proposta(proposta: Client) -> None:
    post(proposta, "/propostas", '{"cliente_id": 1, "valor": 1}', "proposta-002")
    post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")

    other = post(proposta, "/propostas/2/submeter", {"versao": 1}, "submit-001")

    assert other.status_code == 422
    assert proposta.get("/api/v1/propostas/2").json()["estado"] == "rascunho"


def test_s0_11_a_stale_version_is_refused_and_told(proposta: Client) -> None:
    post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")

    by_body = post(proposta, "/propostas/1/aceitar", {"versao": 1}, "accept-001")
    by_header = post(proposta, "/propostas/1/aceitar", {}, "accept-001", **{"If-Match": '"1"'})

    assert (by_body.status_code, by_body.json()["versao"]) == (409, 2)
    assert by_header.status_code == 412
    assert proposta.get("/api/v1/propostas/1").headers["etag"] == '"2"'
    good = post(proposta, "/propostas/1/aceitar", {}, "accept-001", **{"If-Match": '"2"'})
    assert good.json() == {"id": 1, "estado": "aceita", "versao": 3}


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (("aceitar",), False),
        (("recusar",), False),
        (("cancelar",), True),
        (("submeter", "aceitar"), True),
        (("submeter", "recusar"), True),
        (("submeter", "cancelar"), True),
        (("submeter", "submeter"), False),
        (("submeter", "aceitar", "cancelar"), False),
        (("cancelar", "submeter"), False),
    ],
)
def test_s0_12_only_allowed_transitions(proposta: Client, path: tuple[str, ...], allowed: bool) -> None:
    answers = [post(proposta, f"/propostas/1/{name}", {"versao": n}, f"k{n}") for n, name in enumerate(path, 1)]

    assert [answer.status_code for answer in answers[:-1]] == [200] * (len(path) - 1)
    assert answers[-1].status_code == (200 if allowed else 409)


def test_s0_12_the_trail_says_who(proposta: Client) -> None:
    post(proposta, "/propostas/1/submeter", {"versao": 1}, "s", **{"X-Usuario": "ana"})
    post(proposta, "/propostas/1/recusar", {"versao": 2, "motivo": "caro"}, "r", **{"X-Usuario": "rui"})
    post(proposta, "/propostas/1/recusar", {"versao": 2, "motivo": "caro"}, "r", **{"X-Usuario": "rui"})

    trail = proposta.get("/api/v1/propostas/1/historico").json()["itens"]

    assert [(row["operacao"], row["usuario"], row["motivo"]) for row in trail] == [
        ("criar_proposta", "local", None),
        ("submeter_proposta", "local (em nome de ana)", None),
        ("recusar_proposta", "local (em nome de rui)", "caro"),
    ]


def test_s0_12_the_trail_says_when_in_one_form_on_every_database(proposta: Client) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    client = {"versao": 1, "nome": "João"}
    assert proposta.patch("/api/v1/clientes/1", json=client).status_code == 200

    for path in ("/propostas/1/historico", "/clientes/1/historico"):
        (row,) = proposta.get(f"/api/v1{path}").json()["itens"]
        assert re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z", row["created_at"])
        assert before <= datetime.fromisoformat(row["created_at"]) <= datetime.now(UTC)


def test_whom_a_principal_says_it_acts_for_stands_beside_its_own_name(database: str, serving: Any) -> None:
    with serving(Settings(database=database, api_keys="bob:0123456789abcdef")) as client:
        client.headers["Authorization"] = "Bearer 0123456789abcdef"
        client.post("/api/v1/clientes", json=JOAO)
        post(client, "/propostas", {"cliente_id": 1, "valor": 1}, "k", **{"X-Usuario": "alice"})
        trail = client.get("/api/v1/propostas/1/historico").json()["itens"]

    assert [row["usuario"] for row in trail] == ["bob (em nome de alice)"]


@pytest.mark.parametrize("key", ["", '"   "', "x" * 256, "tab\tin"])
def test_s0_13_a_bad_key_is_a_clear_400(client: Client, key: str) -> None:
    refused = post(client, "/clientes", JOAO, key)

    assert refused.status_code == 400
    assert "chave" in refused.json()["detail"].lower()


def test_s0_13_quoted_and_bare_are_one_key_and_255_characters_fit(client: Client) -> None:
    key = "x" * 255

    assert post(client, "/clientes", JOAO, key).status_code == 201
    assert post(client, "/clientes", JOAO, f'"{key}"').status_code == 200


def test_two_keys_in_one_request_are_refused(client: Client) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]

    assert client.post("/api/v1/clientes", json=JOAO, headers=headers).status_code == 400


def test_s0_14_identical_requests_at_the_same_instant_make_one_row(client: Client, settings: Settings) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: post(client, "/clientes", JOAO, "client-001"), range(32)))

    assert sorted({answer.status_code for answer in answers}) == [200, 201]
    assert [answer.status_code for answer in answers].count(201) == 1
    assert {answer.text for answer in answers} == {answers[0].text}
    assert query(settings, "SELECT count(*) FROM clientes") == [(1,)]


def test_s0_14_who_is_overtaken_between_looking_and_inserting_gets_the_rivals_row(
    proposta: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rivals at the same instant may happen to come one after the other: here the look is always too early."""
    looked, looks = Propostas._made_before, []

    def early(self: Propostas, *given: Any) -> Any:
        looks.append(given)
        return None if len(looks) == 1 else looked(self, *given)

    monkeypatch.setattr(Propostas, "_made_before", early)
    monkeypatch.setattr(tables.Dialect, "find_or_insert_cliente", lambda *_: (None, False))
    cliente = post(proposta, "/clientes", JOAO, "client-001")
    other = post(proposta, "/propostas", '{"cliente_id": 1, "valor": 2}', "proposta-001")

    assert (cliente.status_code, cliente.json()["id"]) == (200, 1)
    assert (other.status_code, other.json()["id"], other.json()["valor"]) == (200, 1, 1500)
    assert cliente.headers["idempotent-replayed"] == other.headers["idempotent-replayed"] == "true"
    assert len(looks) == 2


def test_s0_14_simultaneous_submissions_run_once(proposta: Client, settings: Settings) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: post(proposta, "/propostas/1/submeter", {"versao": 1}, "s"), range(32)))

    assert {answer.status_code for answer in answers} == {200}
    assert {answer.text for answer in answers} == {'{"id": 1, "estado": "enviada", "versao": 2}'}
    assert query(settings, "SELECT count(*) FROM propostas_historico WHERE operacao = 'submeter_proposta'") == [(1,)]


def test_s0_15_operations_expire_after_thirty_days(proposta: Client, settings: Settings) -> None:
    post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")
    day = "expires_at - updated_at FROM idempotency_records"
    lasting = query(settings, f"SELECT {day}")[0][0]

    assert lasting == 30 * 24 * 3600 * 1000 if isinstance(lasting, int) else lasting.days == 30


def test_s0_16_reading_one_and_many(proposta: Client) -> None:
    for number in range(2, 5):
        post(proposta, "/clientes", {**JOAO, "email": f"j{number}@example.com", "documento": None})

    page = proposta.get("/api/v1/clientes?limite=3").json()
    rest = proposta.get(f"/api/v1/clientes?limite=3&depois={page['proximo']}").json()

    assert [item["id"] for item in page["itens"]] == [1, 2, 3]
    assert ([item["id"] for item in rest["itens"]], rest["proximo"]) == ([4], None)
    assert proposta.get("/api/v1/clientes/1").json()["nome"] == "João Silva"
    assert proposta.get("/api/v1/propostas").json()["itens"][0]["valor"] == 1500
    for path in ("/clientes/99", "/propostas/99", f"/clientes/{10**30}", "/propostas/99/historico"):
        assert proposta.get(f"/api/v1{path}").status_code == 404
    assert post(proposta, "/propostas", '{"cliente_id": 99, "valor": 1}', "k").status_code == 422
    assert post(proposta, "/propostas/99/submeter", {"versao": 1}, "k").status_code == 404


def test_s0_16_a_number_in_an_address_is_written_in_digits(proposta: Client) -> None:
    for number in ("1_0", "+1", "1.0", "1%20", "%D9%A1", "um"):
        for path in (f"/clientes/{number}", f"/propostas/{number}", f"/propostas/{number}/historico"):
            refused = proposta.get(f"/api/v1{path}")
            assert (path, refused.status_code) == (path, 422)
            assert refused.json()["detail"].endswith("deve ser um número inteiro.")
        assert post(proposta, f"/propostas/{number}/submeter", {"versao": 1}).status_code == 422
    for number in ("-1", "0", "9" * 30):
        assert proposta.get(f"/api/v1/clientes/{number}").json()["detail"] == "Não há cliente com este número."
    assert proposta.get("/api/v1/clientes/99").json()["detail"] == "Não há cliente 99."
    assert proposta.get("/api/v1/clientes/1").status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400),
        ("{", 400),
        ("[]", 422),
        ("{}", 422),
        ('{"nome": "", "email": "a@b"}', 422),
        ('{"nome": "x", "email": "sem-arroba"}', 422),
        ('{"nome": "x\\u0000y", "email": "a@b"}', 422),
        ('{"nome": "' + "x" * 2_000_000 + '"}', 413),
        ("[" * 100_000, 400),
        (b"\xff\xfe", 400),
    ],
)
def test_bad_bodies_are_told_what_is_wrong(client: Client, body: str | bytes, status: int) -> None:
    refused = post(client, "/clientes", body, "k")

    assert refused.status_code == status
    assert refused.json()["detail"]


def test_cpf_and_cnpj_are_checked_when_strict_is_asked(client: Client) -> None:
    strict = {"Prefer": "handling=strict"}

    assert post(client, "/clientes", JOAO, "a", **strict).status_code == 422
    assert post(client, "/clientes", {**JOAO, "documento": "123.456.789-09"}, "b", **strict).status_code == 201


def test_principals_never_meet(database: str, serving: Any) -> None:
    settings = Settings(database=database, api_keys="ana:0123456789abcdef,rui:fedcba9876543210")
    with serving(settings) as client:
        ana, rui = {"Authorization": "Bearer 0123456789abcdef"}, {"Authorization": "Bearer fedcba9876543210"}
        assert post(client, "/clientes", JOAO, "k").status_code == 401
        assert post(client, "/clientes", JOAO, "k", Authorization="Bearer wrong").status_code == 401
        assert post(client, "/clientes", JOAO, "k", **ana).status_code == 201
        other = post(client, "/clientes", {**JOAO, "email": "rui@example.com", "documento": None}, "k", **rui)
        assert (other.status_code, other.json()["email"]) == (201, "rui@example.com")
        assert client.get("/api/v1/clientes/1", headers=rui).json()["idempotencia_key"] is None
        assert client.get("/api/v1/clientes/1", headers=ana).json()["idempotencia_key"] == "k"


def test_a_replay_takes_no_number_from_the_ids(client: Client) -> None:
    post(client, "/clientes", JOAO, "client-001")
    for _ in range(20):
        assert post(client, "/clientes", JOAO, "client-001").status_code == 200

    assert (
        post(client, "/clientes", {**JOAO, "email": "outro@example.com", "documento": "1.234"}, "client-002").json()[
            "id"
        ]
        == 2
    )


def test_a_strict_repeat_is_a_replay_even_of_a_document_that_strict_would_refuse(
    client: Client, settings: Settings
) -> None:
    strict = {"Prefer": "handling=strict"}
    post(client, "/clientes", JOAO, "client-001")

    assert post(client, "/clientes", JOAO, "client-001", **strict).status_code == 200
    other = post(client, "/clientes", {**JOAO, "nome": "Outra"}, "client-001", **strict)
    assert other.json()["type"].endswith("chave-reutilizada")
    new = post(client, "/clientes", {**JOAO, "email": "outro@example.com"}, "client-002", **strict)
    assert new.json()["type"].endswith("documento-invalido")
    assert query(settings, "SELECT count(*) FROM clientes") == [(1,)]


def test_a_used_key_answers_though_its_new_e_mail_is_in_use(client: Client) -> None:
    post(client, "/clientes", JOAO, "client-001")
    post(client, "/clientes", {**JOAO, "email": "outro@example.com", "documento": "1.234"}, "client-002")

    again = post(client, "/clientes", JOAO, "client-002")

    assert (again.status_code, again.json()["email"]) == (200, "outro@example.com")


def test_a_cliente_without_a_document_is_created_under_a_key(client: Client) -> None:
    made = post(client, "/clientes", {"nome": "Ana", "email": "ana@example.com"}, "client-001")

    assert (made.status_code, made.json()["documento"]) == (201, None)


@pytest.mark.parametrize("path", ["/clientes", "/propostas", "/propostas/1/submeter"])
def test_a_user_name_that_does_not_fit_is_refused(proposta: Client, path: str) -> None:
    refused = post(proposta, path, {"versao": 1}, "k", **{"X-Usuario": "x" * 256})

    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert "x-usuario" in refused.json()["detail"]


def test_every_route_documents_the_headers_it_reads(client: Client) -> None:
    document = client.get("/openapi.json").json()
    paths, shared = document["paths"], document["components"]["parameters"]

    for path in ("/api/v1/clientes", "/api/v1/propostas", "/api/v1/propostas/{number}/submeter"):
        given = [
            shared[one["$ref"].rpartition("/")[2]] if "$ref" in one else one
            for one in paths[path]["post"]["parameters"]
        ]
        told = {one["name"].lower() for one in given if one["in"] == "header"}
        assert told >= {"idempotency-key", "prefer", "x-usuario"}
        assert ("if-match" in told) == path.endswith("submeter")


def test_s0_02_one_key_in_every_form_of_its_header_is_one_key(client: Client) -> None:
    made = [
        client.post("/api/v1/clientes", json=JOAO, headers={"Idempotency-Key": sent})
        for sent in ("k-1", '"k-1"', '"k-1";v=1')
    ]

    assert [answer.status_code for answer in made] == [201, 200, 200]
    assert len({answer.json()["id"] for answer in made}) == 1


@pytest.mark.parametrize("sent", ["k-1, k-2", "chave-á".encode(), "k 1", '"k-1", "k-2"'])
def test_s0_13_a_list_or_other_letters_are_no_key(client: Client, sent: str | bytes) -> None:
    refused = client.post("/api/v1/clientes", json=JOAO, headers={"Idempotency-Key": sent})  # type: ignore[dict-item]

    assert refused.status_code == 400
    assert "chave" in refused.json()["detail"]
