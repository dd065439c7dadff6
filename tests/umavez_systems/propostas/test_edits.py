"""Seed 000 beyond its examples: values in SQL, the seed's own table, edits, filters, validity, uniqueness."""

from __future__ import annotations

import json
import sqlite3
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from httpx import Client, Response
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool
from typer.testing import CliRunner

from tests.umavez_systems.propostas.test_web import JOAO, post
from umavez_systems import migrations
from umavez_systems.propostas.command import group
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

STRICT = {"Prefer": "handling=strict"}


def query(settings: Settings, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a statement, behind the application's back; committed."""
    if settings.database.startswith("sqlite"):
        connection = sqlite3.connect(settings.database.removeprefix("sqlite:///"), timeout=30)
        try:
            with connection:
                return connection.execute(sql).fetchall()
        finally:
            connection.close()
    with psycopg.connect(settings.database) as server:
        cursor = server.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def edit(
    client: Client, path: str, body: Any, key: str | None = None, method: str = "PATCH", **headers: str
) -> Response:
    given = headers if key is None else {"Idempotency-Key": key, **headers}
    return client.request(method, f"/api/v1{path}", json=body, headers=given)


@pytest.fixture
def proposta(client: Client) -> Client:
    """A client of an application in which cliente 1 and proposta 1 exist."""
    assert post(client, "/clientes", JOAO, "client-001").status_code == 201
    assert post(client, "/propostas", '{"cliente_id": 1, "valor": 1500.00}', "proposta-001").status_code == 201
    return client


def test_s0_06_values_compare_and_add_up_in_sql(proposta: Client, settings: Settings) -> None:
    for valor in ("15.00", "0.10", "0.20", "99999999.99"):
        assert post(proposta, "/propostas", f'{{"cliente_id": 1, "valor": {valor}}}').status_code == 201

    large = query(settings, "SELECT id FROM propostas WHERE valor > 1000 ORDER BY valor")
    small = query(settings, "SELECT sum(valor_centavos), round(sum(valor), 2) FROM propostas WHERE valor < 1")
    every = query(settings, "SELECT sum(valor_centavos) FROM propostas")

    assert large == [(1,), (5,)]
    assert (int(small[0][0]), Decimal(str(small[0][1]))) == (30, Decimal("0.30"))
    assert int(every[0][0]) == 10_000_000_000 - 1 + 150_000 + 1_530


@pytest.mark.parametrize("valor", ['"1_500"', '"１５"', "-0.0", '"1e3"', '" 15"'])
def test_s0_06_what_is_no_plain_number_is_refused(proposta: Client, valor: str) -> None:
    assert post(proposta, "/propostas", f'{{"cliente_id": 1, "valor": {valor}}}').status_code == 422


def test_s0_08_the_table_has_its_own_unique_key_and_the_seeds_delete_works(
    proposta: Client, settings: Settings
) -> None:
    post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")
    copy = "(idempotencia_key, tipo_operacao, entidade_id, resultado)"

    with pytest.raises(Exception, match=r"(?i)unique"):
        query(
            settings,
            f"INSERT INTO idempotencia_operacoes {copy} VALUES ('submit-001', 'submeter_proposta', 1, '{{}}')",
        )
    sqlite = settings.database.startswith("sqlite")
    now, days = (
        ("CURRENT_TIMESTAMP", "datetime('now', '-30 days')") if sqlite else ("NOW()", "NOW() - INTERVAL '30 DAY'")
    )
    query(settings, f"DELETE FROM idempotencia_operacoes WHERE expires_at < {now}")
    query(settings, f"DELETE FROM idempotencia_operacoes WHERE created_at < {days}")
    assert query(settings, "SELECT count(*) FROM idempotencia_operacoes") == [(1,)]
    query(settings, f"UPDATE idempotencia_operacoes SET created_at = {days}, expires_at = {days}")
    query(settings, f"DELETE FROM idempotencia_operacoes WHERE created_at <= {days}")
    assert query(settings, "SELECT count(*) FROM idempotencia_operacoes") == [(0,)]


def test_s0_08_a_key_that_only_the_table_remembers_is_replayed(proposta: Client, settings: Settings) -> None:
    post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")
    query(settings, "DELETE FROM idempotency_records")

    again = post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")

    assert (again.status_code, again.json()["versao"]) == (200, 2)
    assert again.headers["idempotent-replayed"] == "true"


def test_s0_15_the_command_removes_operations_whose_time_is_over(proposta: Client, settings: Settings) -> None:
    post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")
    post(proposta, "/propostas/1/aceitar", {"versao": 2}, "accept-001")
    old = (
        "UPDATE idempotencia_operacoes SET expires_at = '2020-01-01 00:00:00' WHERE tipo_operacao = 'aceitar_proposta'"
    )
    query(settings, old)

    runs = [CliRunner().invoke(group, ["sweep", "--database", settings.database]) for _ in range(2)]

    assert [run.output for run in runs] == ["1 operations removed.\n", "0 operations removed.\n"]
    assert query(settings, "SELECT tipo_operacao FROM idempotencia_operacoes") == [("submeter_proposta",)]


@pytest.mark.parametrize("body", ["", "{", "{}", "[]", '{"versao": "x"}'])
def test_s0_09_a_used_key_comes_before_the_body_on_every_route(proposta: Client, body: str) -> None:
    post(proposta, "/propostas/1/submeter", {"versao": 1}, "submit-001")
    edit(proposta, "/clientes/1", {"versao": 1, "nome": "Ana"}, "edit-001")

    again = post(proposta, "/propostas/1/submeter", body, "submit-001")
    cliente = proposta.patch(
        "/api/v1/clientes/1",
        content=body,
        headers={"Idempotency-Key": "edit-001", "Content-Type": "application/json"},
    )

    assert (again.status_code, again.json()) == (200, {"id": 1, "estado": "enviada", "versao": 2})
    assert (cliente.status_code, cliente.json()["nome"]) == (200, "Ana")
    assert post(proposta, "/propostas/1/submeter", body, "unused").status_code in (400, 422)


def test_s0_09_strict_and_lenient_repeats_of_one_body_agree(proposta: Client) -> None:
    first = post(proposta, "/propostas/1/submeter", {"versao": 1}, "s")
    strict = post(proposta, "/propostas/1/submeter", {"versao": 1}, "s", **STRICT)
    other = post(proposta, "/propostas/1/submeter", {"versao": 2}, "s", **STRICT)
    accepted = post(proposta, "/propostas/1/aceitar", {"versao": 2}, "a", **STRICT)
    lenient = post(proposta, "/propostas/1/aceitar", {"versao": 2}, "a")

    assert first.json() == strict.json()
    assert (other.status_code, other.json()["type"].rpartition("/")[2]) == (422, "chave-reutilizada")
    assert accepted.json() == lenient.json()


def test_s0_02_a_replay_shows_the_cliente_as_it_was_edited(proposta: Client, settings: Settings) -> None:
    first = edit(proposta, "/clientes/1", {"versao": 1, "nome": "João Souza"}, "e-1", **{"X-Usuario": "ana"})
    again = edit(proposta, "/clientes/1", {"versao": 1, "nome": "João Souza"}, "e-1")
    stale = edit(proposta, "/clientes/1", {"versao": 1, "nome": "Outro"}, "e-2")
    by_header = edit(proposta, "/clientes/1", {"nome": "Outro"}, "e-3", **{"If-Match": '"1"'})

    assert (first.status_code, first.headers["etag"]) == (200, '"2"')
    assert again.json() == first.json() == {"id": 1, **JOAO, "nome": "João Souza", "idempotencia_key": "client-001"}
    assert again.headers["idempotent-replayed"] == "true"
    assert (stale.status_code, stale.json()["versao"], by_header.status_code) == (409, 2, 412)
    assert post(proposta, "/clientes", JOAO, "client-001").json()["nome"] == "João Souza"
    (entry,) = proposta.get("/api/v1/clientes/1/historico").json()["itens"]
    assert (entry["usuario"], entry["versao"]) == ("local (em nome de ana)", 2)
    assert entry["mudancas"] == {"nome": ["João Silva", "João Souza"]}


def test_s0_12_put_replaces_a_cliente_and_patch_only_what_it_says(proposta: Client) -> None:
    patched = edit(proposta, "/clientes/1", {"versao": 1, "email": "novo@example.com"})
    put = edit(proposta, "/clientes/1", {"versao": 2, "nome": "Ana", "email": "ana@example.com"}, method="PUT")

    assert (patched.json()["nome"], patched.json()["documento"]) == ("João Silva", "123.456.789-00")
    assert (put.json()["nome"], put.json()["documento"]) == ("Ana", None)
    assert edit(proposta, "/clientes/1", {"versao": 3}).status_code == 422
    assert edit(proposta, "/clientes/1", {"nome": "x"}).status_code == 422
    assert edit(proposta, "/clientes/9", {"versao": 1, "nome": "x"}).status_code == 404


def test_s0_12_a_draft_is_edited_and_nothing_else(proposta: Client) -> None:
    first = edit(proposta, "/propostas/1", {"versao": 1, "valor": 1600.10, "motivo": "desconto"}, "e-1")
    again = edit(proposta, "/propostas/1", {"versao": 1, "valor": 1600.10, "motivo": "desconto"}, "e-1")
    post(proposta, "/propostas/1/submeter", {"versao": 2}, "s")
    late = edit(proposta, "/propostas/1", {"versao": 3, "valor": 1}, "e-2")
    now = edit(proposta, "/propostas/1", {"versao": 1, "valor": 1600.10}, "e-1")

    assert first.json() == again.json()
    assert '"valor": 1600.10' in first.text
    assert (first.json()["versao"], first.headers["etag"]) == (2, '"2"')
    assert (late.status_code, late.json()["estado"]) == (409, "enviada")
    assert (now.status_code, now.json()["estado"]) == (200, "enviada")
    trail = proposta.get("/api/v1/propostas/1/historico").json()["itens"]
    assert [(row["operacao"], row["motivo"]) for row in trail][1] == ("alterar_proposta", "desconto")
    assert edit(proposta, "/propostas/1", {"versao": 3, "cliente_id": 9}).status_code == 409


def test_s0_12_edits_at_once_under_one_key_happen_once(proposta: Client, settings: Settings) -> None:
    body = {"versao": 1, "nome": "Ana"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: edit(proposta, "/clientes/1", body, "e-1"), range(16)))

    assert {answer.status_code for answer in answers} == {200}
    assert query(settings, "SELECT versao FROM clientes") == [(2,)]
    assert query(settings, "SELECT count(*) FROM clientes_historico") == [(1,)]


def test_s0_16_lists_are_filtered_and_unknown_filters_refused(proposta: Client) -> None:
    post(proposta, "/clientes", {"nome": "Ana", "email": "Ana@Example.com"}, "client-002")
    post(proposta, "/propostas", {"cliente_id": 2, "valor": 1}, "p-2")
    post(proposta, "/propostas/1/submeter", {"versao": 1}, "s")

    def ids(path: str) -> list[int]:
        answer = proposta.get(f"/api/v1{path}")
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json()["itens"]]

    assert ids("/propostas?estado=enviada") == [1]
    assert ids("/propostas?cliente_id=2") == [2]
    assert ids("/propostas?cliente_id=2&estado=enviada") == []
    assert ids("/clientes?email=ANA@example.com") == [2]
    assert ids("/clientes?documento=12345678900") == [1]
    for path in ("/propostas?status=x", "/clientes?nome=x", "/propostas?estado=perdida", "/propostas?cliente_id=x"):
        assert proposta.get(f"/api/v1{path}").status_code == 422
    assert "estado" in proposta.get("/api/v1/propostas?status=x").json()["detail"]


def test_s0_16_a_proposta_past_its_day_is_neither_submitted_nor_accepted(proposta: Client, settings: Settings) -> None:
    made = post(proposta, "/propostas", {"cliente_id": 1, "valor": 1, "validade": "2999-12-31"}, "p-2")
    query(settings, "UPDATE propostas SET validade = '2020-01-01' WHERE id = 2")

    late = post(proposta, "/propostas/2/submeter", {"versao": 1}, "s")
    mended = edit(proposta, "/propostas/2", {"versao": 1, "validade": None})

    assert made.json()["validade"] == "2999-12-31"
    assert (late.status_code, "2020-01-01" in late.json()["detail"]) == (409, True)
    assert "validade" not in mended.json()
    assert post(proposta, "/propostas/2/submeter", {"versao": 2}, "s").status_code == 200
    for day in ("2020-01-01", "2026-02-30", "amanhã", "2026-W01-1"):
        body = {"cliente_id": 1, "valor": 1, "validade": day}
        assert post(proposta, "/propostas", body).status_code == 422


def test_s0_04_e_mail_and_document_are_unique_however_they_are_written(proposta: Client) -> None:
    mail = post(proposta, "/clientes", {"nome": "x", "email": "JOAO@Example.com"})
    document = post(proposta, "/clientes", {"nome": "x", "email": "x@example.com", "documento": "12345678900"})
    free = post(proposta, "/clientes", {"nome": "x", "email": "x@example.com", "documento": "1"})
    moved = edit(proposta, f"/clientes/{free.json()['id']}", {"versao": 1, "email": "Joao@example.com"})

    assert (mail.status_code, mail.json()["type"].rpartition("/")[2]) == (409, "email-em-uso")
    assert (document.status_code, document.json()["type"].rpartition("/")[2]) == (409, "documento-em-uso")
    assert free.status_code == 201
    assert moved.status_code == 409
    made, again = (
        post(proposta, "/clientes", {"nome": "x", "email": unicodedata.normalize(form, "josé@example.com")})
        for form in ("NFC", "NFD")
    )
    assert (made.status_code, again.status_code) == (201, 409)


def test_s0_04_an_e_mail_whose_small_letters_do_not_fit_is_refused_on_every_route(proposta: Client) -> None:
    long = f"{'İ' * 60}@{'İ' * 180}.com"

    for answer in (
        post(proposta, "/clientes", {"nome": "x", "email": long}, "long"),
        edit(proposta, "/clientes/1", {"versao": 1, "email": long}),
        proposta.put("/api/v1/clientes/1", json={"versao": 1, "nome": "x", "email": long}),
    ):
        assert (answer.status_code, answer.json()["detail"]) == (422, "email: deve ter no máximo 250 caracteres.")
    assert proposta.get("/api/v1/clientes", params={"email": long[:250]}).json()["itens"] == []


def test_what_was_there_before_is_carried_over(tmp_path: Path) -> None:
    """Values as text, two addresses that mean the same, two rides of one passenger: nothing is lost."""
    path = tmp_path / "old.db"
    settings = Settings(database=f"sqlite:///{path}")
    _at(path, "0005", settings)
    connection = sqlite3.connect(path)
    with connection:
        for mail in ("A@x.com", "a@x.com", "b@x.com"):
            connection.execute("INSERT INTO clientes (nome, email, documento) VALUES ('n', ?, NULL)", (mail,))
        for valor in ("1500.00", "0.10", "99999999.99"):
            text = "INSERT INTO propostas (cliente_id, valor, estado, versao) VALUES (1, ?, 'rascunho', 1)"
            connection.execute(text, (valor,))
        columns = "id, principal, passenger_id, type, status, out_of_fence, passenger_lat, passenger_lng"
        for ride in ("c1", "c2"):
            values = "'local', 'p', 'normal', 'requested', true, 0, 0"
            connection.execute(f"INSERT INTO rides ({columns}) VALUES ('{ride}', {values})")
    connection.close()

    prepare(settings)

    assert query(settings, "SELECT valor_centavos FROM propostas ORDER BY id") == [(150_000,), (10,), (9_999_999_999,)]
    assert query(settings, "SELECT email_unico FROM clientes ORDER BY id") == [("a@x.com",), (None,), ("b@x.com",)]
    assert query(settings, "SELECT id, sole FROM rides ORDER BY id") == [("c1", 0), ("c2", 1)]
    assert json.dumps(query(settings, "SELECT count(*) FROM idempotencia_operacoes")) == "[[0]]"


def _at(path: Path, version: str, settings: Settings) -> None:
    """Make the tables of an earlier version."""
    from umavez.migration import migrate

    migrate(f"sqlite:///{path}?journal=delete")
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
