"""Propostas: exact values in SQL, idempotencia_operacoes as the seed's table, edits, validity, unique documents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

NOW = sa.text("CURRENT_TIMESTAMP")
# SQLite has no decimals: it counts centavos, and `valor` is what they amount to. PostgreSQL keeps its DECIMAL(10,2).
CENTAVOS = {
    "sqlite": (
        """ALTER TABLE propostas ADD COLUMN valor_centavos INTEGER NOT NULL DEFAULT 0
           CHECK (typeof(valor_centavos) = 'integer' AND valor_centavos BETWEEN 0 AND 9999999999)""",
        "UPDATE propostas SET valor_centavos = CAST(replace(valor, '.', '') AS INTEGER)",
        "ALTER TABLE propostas DROP COLUMN valor",
        "ALTER TABLE propostas ADD COLUMN valor NUMERIC GENERATED ALWAYS AS (valor_centavos / 100.0) VIRTUAL",
    ),
    "postgresql": (
        """ALTER TABLE propostas ADD COLUMN valor_centavos BIGINT
           GENERATED ALWAYS AS (CAST(valor * 100 AS BIGINT)) STORED""",
    ),
}
# The engine's key is the caller's; the column is everybody's, and carries the principal as on other rows.
COPY = """
    INSERT INTO idempotencia_operacoes
        (idempotencia_key, tipo_operacao, entidade_id, resultado, created_at, expires_at)
    SELECT CASE WHEN principal = 'local' THEN idempotencia_key ELSE substr(principal || ':' || idempotencia_key, 1, 255)
           END, tipo_operacao, entidade_id, resultado, created_at, expires_at
      FROM operacoes_antes WHERE tipo_operacao LIKE '%_proposta' AND entidade_id IS NOT NULL
        ON CONFLICT (idempotencia_key, tipo_operacao) DO NOTHING
"""
EMAIL = "lower(trim(email))"
DOCUMENTO = "upper(replace(replace(replace(replace(trim(documento), '.', ''), '-', ''), '/', ''), ' ', ''))"


def upgrade() -> None:
    """Change the tables; what is there already stays, also where it breaks a rule that is new."""
    for statement in CENTAVOS[op.get_bind().dialect.name]:
        op.execute(statement)
    op.add_column("propostas", sa.Column("validade", sa.Date().with_variant(sa.Text(), "sqlite")))
    op.create_index("ix_propostas_estado", "propostas", ["estado", "id"])
    _operations()
    _clientes()


def _operations() -> None:
    op.execute("CREATE TEMPORARY TABLE operacoes_antes AS SELECT * FROM idempotencia_operacoes")
    op.execute("DROP VIEW idempotencia_operacoes")
    op.create_table(
        "idempotencia_operacoes",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("idempotencia_key", sa.String(255), nullable=False),
        sa.Column("tipo_operacao", sa.String(50), nullable=False),
        sa.Column("entidade_id", sa.Integer, nullable=False),
        sa.Column("resultado", sa.JSON, nullable=False),
        sa.Column("impressao", sa.String(80)),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("idempotencia_key", "tipo_operacao", name="uq_idempotencia_operacoes"),
    )
    op.create_index("ix_idempotencia_operacoes_expires_at", "idempotencia_operacoes", ["expires_at"])
    op.execute(COPY)
    op.execute("DROP TABLE operacoes_antes")


def _clientes() -> None:
    op.add_column("clientes", sa.Column("versao", sa.Integer, nullable=False, server_default="1"))
    for column, meant in (("email_unico", EMAIL), ("documento_unico", DOCUMENTO)):
        op.add_column("clientes", sa.Column(column, sa.String(255)))
        # Of several that mean the same, the first has it; the others stay as they are.
        op.execute(
            f"UPDATE clientes SET {column} = {meant} WHERE id IN"  # noqa: S608  # our own words
            f" (SELECT min(id) FROM clientes WHERE {meant} <> '' GROUP BY {meant})"
        )
        op.create_index(f"uq_clientes_{column}", "clientes", [column], unique=True)
    op.create_table(
        "clientes_historico",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("cliente_id", sa.Integer, sa.ForeignKey("clientes.id"), nullable=False),
        sa.Column("operacao", sa.String(50), nullable=False),
        sa.Column("versao", sa.Integer, nullable=False),
        sa.Column("usuario", sa.String(255), nullable=False),
        sa.Column("mudancas", sa.Text, nullable=False),
        sa.Column("idempotencia_key", sa.String(255)),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
    )
    op.create_index("ix_clientes_historico_cliente_id", "clientes_historico", ["cliente_id"])
