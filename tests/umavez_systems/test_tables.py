"""The seeds' tables as they are made on each database: every column, type, UNIQUE and index that a document names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy

from umavez_systems.server import prepare
from umavez_systems.settings import Settings

TEXT, KEY = "TEXT", "VARCHAR(255)"
COLUMNS = {
    "clientes": {"id": "INTEGER", "nome": KEY, "email": KEY, "documento": "VARCHAR(20)", "idempotencia_key": KEY},
    "propostas": {
        "id": "INTEGER",
        "cliente_id": "INTEGER",
        "valor": ("NUMERIC", "NUMERIC(10, 2)"),
        "estado": "VARCHAR(20)",
        "idempotencia_key": KEY,
    },
    "idempotencia_operacoes": {
        "id": "INTEGER",
        "idempotencia_key": KEY,
        "tipo_operacao": "VARCHAR(50)",
        "entidade_id": "INTEGER",
        "resultado": "JSON",
        "created_at": ("DATETIME", "TIMESTAMP"),
        "expires_at": ("DATETIME", "TIMESTAMP"),
    },
    "ride_confirmations": {
        "id": "VARCHAR(30)",
        "passenger_id": "VARCHAR(200)",
        "confirmation_token": "VARCHAR(64)",
        "ride_data": "JSON",
        "is_used": "BOOLEAN",
        "used_at": ("DATETIME", "TIMESTAMP"),
        "created_ride_id": "VARCHAR(30)",
        "expires_at": ("DATETIME", "TIMESTAMP"),
        "created_at": ("DATETIME", "TIMESTAMP"),
    },
    "mailings": {
        "id": (TEXT, "UUID"),
        "filename": KEY,
        "storage_url": TEXT,
        "status": "VARCHAR(50)",
        "last_attempt": (TEXT, "TIMESTAMP"),
        "created_at": (TEXT, "TIMESTAMP"),
        "updated_at": (TEXT, "TIMESTAMP"),
    },
    "mailing_entries": {
        "id": (TEXT, "UUID"),
        "mailing_id": KEY,
        "email": KEY,
        "token": KEY,
        "status": "VARCHAR(50)",
        "attempts": "INTEGER",
        "last_attempt": (TEXT, "TIMESTAMP"),
        "external_id": KEY,
        "created_at": (TEXT, "TIMESTAMP"),
        "updated_at": (TEXT, "TIMESTAMP"),
    },
    "idempotency_records": {
        "id": ("INTEGER", "BIGINT"),
        "idempotency_key": (KEY, TEXT),
        "process_instance_id": (KEY, TEXT),
        "activity_id": (KEY, TEXT),
        "operation_name": (KEY, TEXT),
        "status": TEXT,
        "result_data": TEXT,
        "error_message": TEXT,
        "retry_count": "INTEGER",
        "created_at": ("INTEGER", "TIMESTAMP"),
        "updated_at": ("INTEGER", "TIMESTAMP"),
        "expires_at": ("INTEGER", "TIMESTAMP"),
    },
    "documentos_fiscais": {
        "id": "VARCHAR(32)",
        "id_idempotencia": "VARCHAR(80)",
        "chave_acesso": "VARCHAR(50)",
        "versao": "INTEGER",
    },
    "faixas_numeracao": {
        "org_id": "VARCHAR(130)",
        "serie": "INTEGER",
        "ultimo_numero": "BIGINT",
        "bloqueado": "BOOLEAN",
    },
}
"""What a seed names, as SQLite and as PostgreSQL write it where they differ. More columns may stand beside these."""
UNIQUE = {
    "clientes": {("idempotencia_key",)},
    "propostas": {("idempotencia_key",)},
    "idempotencia_operacoes": {("idempotencia_key", "tipo_operacao")},
    "ride_confirmations": {("confirmation_token",)},
    "mailings": {("filename",), ("filename", "content_hash")},
    "mailing_entries": {("mailing_id", "email")},
    "idempotency_records": {("digest",)},
    "documentos_fiscais": {("id_idempotencia",)},
}
NAMED = {
    "mailings": {"idx_mailings_filename"},
    "mailing_entries": {"unique_mailing_email", "idx_mailing_entries_mailing_id", "idx_mailing_entries_status"},
    "idempotency_records": {"idx_idempotency_key", "idx_process_instance", "idx_created_at", "idx_expires_at"},
    "documentos_fiscais": {"uk_id_idempotencia", "idx_df_chave_acesso"},
}
OPTIONAL = {
    "clientes": {"idempotencia_key", "documento"},
    "propostas": {"idempotencia_key"},
    "idempotencia_operacoes": {"expires_at"},
    "ride_confirmations": {"used_at", "created_ride_id"},
    "mailings": {"storage_url", "last_attempt"},
    "mailing_entries": {"last_attempt", "external_id"},
    "idempotency_records": {"result_data", "error_message"},
    "documentos_fiscais": {"chave_acesso"},
}
"""Columns that may be NULL."""


@pytest.fixture
def looked(database: str) -> Iterator[Any]:
    prepare(Settings(database=database))
    engine = sqlalchemy.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    yield sqlalchemy.inspect(engine)
    engine.dispose()


def test_s0_03_s0_06_s0_08_s0_15_s1_05_s2_02_s2_03_s3_01_s4_08_s4_10_the_seeds_tables(looked: Any) -> None:
    server = looked.dialect.name == "postgresql"
    for table, wanted in COLUMNS.items():
        found = {one["name"]: one for one in looked.get_columns(table)}
        for name, kind in wanted.items():
            expected = kind if isinstance(kind, str) else kind[server]
            told = str(found[name]["type"]).partition(" COLLATE ")[0]
            assert (table, name, told) == (table, name, expected)
        missing = {name for name in OPTIONAL.get(table, ()) if not found[name]["nullable"]}
        assert (table, missing) == (table, set())


def test_s0_03_s0_06_s0_08_s1_05_s2_02_s2_03_s3_01_s4_08_their_unique_keys_and_indexes(looked: Any) -> None:
    for table in COLUMNS:
        indexes, constraints = looked.get_indexes(table), looked.get_unique_constraints(table)
        every = [*constraints, *(one for one in indexes if one["unique"])]
        assert UNIQUE.get(table, set()) <= {tuple(one["column_names"]) for one in every}
        assert NAMED.get(table, set()) <= {one["name"] for one in (*indexes, *constraints)}
    expiry = [tuple(one["column_names"]) for one in looked.get_indexes("idempotencia_operacoes")]
    assert ("expires_at",) in expiry
    numbering = looked.get_pk_constraint("faixas_numeracao")["constrained_columns"]
    assert numbering == ["org_id", "modelo", "serie"]


def test_s0_03_s0_06_many_rows_may_have_no_key(database: str) -> None:
    prepare(Settings(database=database))
    engine = sqlalchemy.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        for number in range(3):
            connection.execute(
                sqlalchemy.text("INSERT INTO clientes (nome, email) VALUES ('n', :email)"),
                {"email": f"sem-chave-{number}@example.com"},
            )
        many = connection.execute(sqlalchemy.text("SELECT count(*) FROM clientes WHERE idempotencia_key IS NULL"))
        assert many.scalar_one() == 3
    engine.dispose()
