"""Clientes and propostas (seed 000), and idempotencia_operacoes as a view over the engine's records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# SQLite would keep a DECIMAL as a float; as text it keeps every digit.
DECIMAL = sa.Numeric(10, 2).with_variant(sa.Text(), "sqlite")
NOW = sa.text("CURRENT_TIMESTAMP")

OPERATIONS = {
    "postgresql": """
        CREATE VIEW idempotencia_operacoes AS
        SELECT fence AS id, idempotency_key AS idempotencia_key, operation_name AS tipo_operacao,
               (result_data::json ->> 'id')::bigint AS entidade_id, result_data::json AS resultado,
               created_at, expires_at, scope AS principal
          FROM idempotency_records
         WHERE activity_id = 'propostas' AND status = 'SUCCESS'
    """,
    "sqlite": """
        CREATE VIEW idempotencia_operacoes AS
        SELECT fence AS id, idempotency_key AS idempotencia_key, operation_name AS tipo_operacao,
               json_extract(result_data, '$.id') AS entidade_id, result_data AS resultado,
               strftime('%Y-%m-%d %H:%M:%f', created_at / 1000.0, 'unixepoch') AS created_at,
               strftime('%Y-%m-%d %H:%M:%f', expires_at / 1000.0, 'unixepoch') AS expires_at,
               scope AS principal
          FROM idempotency_records
         WHERE activity_id = 'propostas' AND status = 'SUCCESS'
    """,
}


def upgrade() -> None:
    """Create the tables and the view. The engine's own tables exist already."""
    op.create_table(
        "clientes",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("nome", sa.String(255), nullable=False),
        sa.Column("email", sa.String(255), nullable=False),
        sa.Column("documento", sa.String(20)),
        sa.Column("documento_valido", sa.Boolean),
        sa.Column("idempotencia_key", sa.String(255), nullable=True),
        sa.Column("impressao", sa.String(80)),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
    )
    op.create_index("uq_clientes_email", "clientes", ["email"], unique=True)
    op.create_index("uq_clientes_idempotencia_key", "clientes", ["idempotencia_key"], unique=True)
    op.create_table(
        "propostas",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("cliente_id", sa.Integer, sa.ForeignKey("clientes.id"), nullable=False),
        sa.Column("valor", DECIMAL, nullable=False),
        sa.Column("estado", sa.String(20), nullable=False),
        sa.Column("versao", sa.Integer, nullable=False),
        sa.Column("idempotencia_key", sa.String(255), nullable=True),
        sa.Column("impressao", sa.String(80)),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "estado IN ('rascunho', 'enviada', 'aceita', 'recusada', 'cancelada')", name="ck_propostas_estado"
        ),
    )
    op.create_index("uq_propostas_idempotencia_key", "propostas", ["idempotencia_key"], unique=True)
    op.create_index("ix_propostas_cliente_id", "propostas", ["cliente_id"])
    op.create_table(
        "propostas_historico",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("proposta_id", sa.Integer, sa.ForeignKey("propostas.id"), nullable=False),
        sa.Column("operacao", sa.String(50), nullable=False),
        sa.Column("de", sa.String(20)),
        sa.Column("para", sa.String(20), nullable=False),
        sa.Column("versao", sa.Integer, nullable=False),
        sa.Column("usuario", sa.String(255), nullable=False),
        sa.Column("motivo", sa.Text),
        sa.Column("idempotencia_key", sa.String(255)),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
    )
    op.create_index("ix_propostas_historico_proposta_id", "propostas_historico", ["proposta_id"])
    op.execute(OPERATIONS[op.get_bind().dialect.name])
