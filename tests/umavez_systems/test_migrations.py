"""Tables with data in them come from earlier versions to the newest, on both databases, and nothing is lost."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from alembic import command
from alembic.config import Config

from tests.servers import KINDS, Missing, Run
from tests.umavez_systems.conftest import served
from tests.umavez_systems.processos.conftest import claim
from umavez import Key, derived_key
from umavez_systems import migrations
from umavez_systems.processos.domain import lote_of
from umavez_systems.server import prepare
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

OLD_RECORDS = Path(__file__).parents[1] / "cli" / "version_1"
STEP = ("a3f2e1d4", "Task_SubmitClaim", "submit_claim")
RIDES = (("c1", "15.50"), ("c2", "1000.00"), ("c3", "9.90"), ("c4", None), ("c5", "99999999.99"))
Rows = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path, server_run: Run) -> Iterator[str]:
    """A database in which nothing is."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/old.db"
        return
    server = server_run.server(KINDS["postgres"])
    if isinstance(server, Missing):
        pytest.skip(f"{server}: {server.advice}")
    with server_run.lend(KINDS["postgres"], server) as lent:
        yield lent


@pytest.fixture
def rows(url: str) -> Rows:
    """Runs a statement behind the application's back; values are marked with ?."""

    def run(sql: str, *values: Any) -> list[tuple[Any, ...]]:
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as file:
                return file.execute(sql, values).fetchall()
        with psycopg.connect(url, autocommit=True) as server:
            cursor = server.execute(sql.replace("?", "%s").encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    return run


def old(url: str, rows: Rows, version: str) -> None:
    """Make the engine's tables of version 1, and the systems' of `version`."""
    kind = "sqlite" if url.startswith("sqlite") else "postgres"
    text = re.sub(r"--[^\n]*", "", (OLD_RECORDS / f"{kind}.sql").read_text())
    for statement in filter(None, map(str.strip, text.split(";"))):
        rows(statement)
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with migrations._file(url) if kind == "sqlite" else migrations._server(url) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)


def remember(url: str, rows: Rows, operation: str, key: Key, result: dict[str, Any], activity: str) -> None:
    """Put a settled record of version 1 into its table."""
    now = int(time.time() * 1000)
    moment = "?" if url.startswith("sqlite") else "to_timestamp(CAST(? AS bigint) / 1000.0)"
    rows(
        "INSERT INTO idempotency_records (digest, scope, operation_name, idempotency_key, stamp, fence, status,"
        " attempt, created_at, updated_at, expires_at, process_instance_id, activity_id, outcome_kept, result_data)"
        f" VALUES (?, ?, ?, ?, 's', 1, 'SUCCESS', 1, {moment}, {moment}, {moment}, ?, ?, ?, ?)",
        *(key.digest, key.scope, operation, key.value),
        *(now, now, now + 86_400_000, STEP[0], activity, True, json.dumps(result)),
    )
    fence = "UPDATE umavez_meta SET value = 1 WHERE name = 'fence'" if url.startswith("sqlite") else None
    rows(fence or "SELECT nextval('umavez_fence')")


def ride(rows: Rows, number: str, price: str | None) -> None:
    rows(
        "INSERT INTO rides (id, principal, passenger_id, type, status, out_of_fence, passenger_lat, passenger_lng,"
        " price) VALUES (?, 'local', ?, 'normal', 'finished', ?, 0, 0, ?)",
        *(number, f"p-{number}", False, price),
    )


def test_s3_01_a_claim_that_was_handed_in_before_is_replayed_after_the_upgrade(url: str, rows: Rows) -> None:
    old(url, rows, "0008")
    key = Key("local", "submit_claim", derived_key(*STEP, lote_of(claim()).sent()))
    result = {"claimId": "CLM-000007", "status": "recebido", "lote": "L-1", "valor": "150.00"}
    remember(url, rows, "submit_claim", key, result, STEP[1])
    rows(
        "INSERT INTO processos_pagamentos (operadora, protocolo, principal, chave, criado_em)"
        " VALUES ('326305', 'CLM-000007', 'local', 'k', 1)"
    )
    settings = Settings(database=url, portal_url="http://127.0.0.1:1")

    with served(settings) as client:
        body = {"processInstanceId": STEP[0], "activityId": STEP[1], "claimData": claim()}
        again = client.post("/api/v1/submit_claim", json=body)
        shown = client.get(f"/api/v1/idempotency_records/{key.value}").json()

    assert (again.status_code, again.json()["claimId"]) == (200, "CLM-000007")
    assert [(shown["id"],)] == rows("SELECT id FROM idempotency_records")
    assert rows("SELECT chave FROM processos_pagamentos") == [("k",)]


def test_the_view_of_the_first_versions_does_not_stop_the_upgrade(url: str, rows: Rows) -> None:
    """Until 0006 idempotencia_operacoes was a view on the engine's table, which the engine now makes anew."""
    old(url, rows, "0005")
    rows("INSERT INTO clientes (nome, email) VALUES ('n', 'a@x.com')")
    valor = "'10.00'" if url.startswith("sqlite") else "10.00"
    rows(f"INSERT INTO propostas (cliente_id, valor, estado, versao) VALUES (1, {valor}, 'enviada', 2)")
    key = Key("local", "submeter_proposta", "k-1")
    remember(url, rows, "submeter_proposta", key, {"id": 1}, "propostas")
    assert rows("SELECT idempotencia_key FROM idempotencia_operacoes") == [("k-1",)]

    prepare(Settings(database=url))

    found = rows("SELECT idempotencia_key, tipo_operacao, entidade_id FROM idempotencia_operacoes")
    assert found == [("k-1", "submeter_proposta", 1)]


def test_s1_prices_compare_and_sum_as_numbers_after_the_upgrade(url: str, rows: Rows) -> None:
    old(url, rows, "0008")
    for number, price in RIDES:
        ride(rows, number, price)

    prepare(Settings(database=url))

    cents = [("c1", 1550), ("c2", 100_000), ("c3", 990), ("c4", None), ("c5", 9_999_999_999)]
    assert rows("SELECT id, price_cents FROM rides ORDER BY id") == cents
    assert rows("SELECT id FROM rides WHERE price > 15 ORDER BY price") == [("c1",), ("c2",), ("c5",)]
    assert rows("SELECT sum(price_cents) FROM rides") == [(10_000_102_539,)]
    ((price,),) = rows("SELECT price FROM rides WHERE id = 'c1'")
    assert float(price) == 15.5
    prepare(Settings(database=url))
    assert rows("SELECT id, price_cents FROM rides ORDER BY id") == cents


def test_s1_a_price_that_is_none_is_refused_by_the_table(url: str, rows: Rows) -> None:
    prepare(Settings(database=url))
    column, bad = ("price_cents", 1.5) if url.startswith("sqlite") else ("price", 10**9)
    sql = (
        "INSERT INTO rides (id, principal, passenger_id, type, status, out_of_fence, passenger_lat, passenger_lng,"
        f" {column}) VALUES ('c', 'local', 'p', 'normal', 'finished', ?, 0, 0, ?)"
    )

    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.NumericValueOutOfRange)):
        rows(sql, False, bad)
    rows(sql, False, None)


def test_s4_08_documents_are_unique_by_their_identity_and_found_by_their_key(database: str) -> None:
    prepare(Settings(database=database))
    engine = sqlalchemy.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    looked = sqlalchemy.inspect(engine)

    unique = [tuple(one["column_names"]) for one in looked.get_unique_constraints("documentos_fiscais")]
    indexes = [tuple(one["column_names"]) for one in looked.get_indexes("documentos_fiscais")]
    engine.dispose()
    assert ("id_idempotencia",) in unique
    assert ("chave_acesso",) in indexes


def test_s2_02_entries_of_before_are_sent_after_the_upgrade(url: str, rows: Rows) -> None:
    old(url, rows, "0012")
    mailing = "01890000-0000-7000-8000-000000000001"
    rows(
        "INSERT INTO mailings (id, filename, nome, status, dialeto, ingerido, linhas, aceitas, entradas, pendentes,"
        " enviados, desconhecidos) VALUES (?, 'local/a.csv', 'a.csv', 'QUEUED', '{}', ?, 4, 4, 4, 2, 1, 1)",
        mailing,
        True,
    )
    for status, due in (("PENDING", None), ("PENDING", 1), ("SENT", None), ("UNKNOWN", None)):
        rows(
            "INSERT INTO mailing_entries (mailing_id, email, token, status, depois_de) VALUES (?, ?, 't', ?, ?)",
            *(mailing, f"{status}{due}@b.com", status, due),
        )

    with served(Settings(database=url, mailing_embedded="off")):
        carrier = Carrier(Settings(database=url, mailing_embedded="off"))
        holding = carrier.mailing.holdings.acquire(mailing)
        assert holding is not None
        taken = [entry["email"] for entry in holding.turn([], 5, "x").entries]
        carrier.close()

    assert taken == ["PENDING1@b.com", "PENDINGNone@b.com"]
    assert rows("SELECT count(*) FROM mailing_entries") == [(4,)]
