"""Processos (seed 003): process instances, their definitions and timelines. Idempotency stays with the engine."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the tables. Times are milliseconds since the epoch, as the engine's are."""
    op.create_table(
        "processos_definicoes",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("nome", sa.String(255), nullable=False),
        sa.Column("xml", sa.Text, nullable=False),
    )
    op.create_table(
        "processos",
        sa.Column("principal", sa.String(60), primary_key=True),
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("definicao", sa.String(64), sa.ForeignKey("processos_definicoes.digest"), nullable=False),
        sa.Column("nome", sa.String(255), nullable=False),
        sa.Column("estado", sa.String(20), nullable=False),
        sa.Column("versao", sa.Integer, nullable=False),
        sa.Column("conteudo", sa.Text, nullable=False),
        sa.Column("vence_em", sa.BigInteger),
        sa.Column("falhas", sa.Integer, nullable=False),
        sa.Column("desfecho", sa.String(255)),
        sa.Column("motivo", sa.Text),
        sa.Column("criado_em", sa.BigInteger, nullable=False),
        sa.Column("mudado_em", sa.BigInteger, nullable=False),
        sa.CheckConstraint("estado IN ('ativo', 'esperando', 'incidente', 'encerrado')", name="ck_processos_estado"),
    )
    op.create_index("ix_processos_vence_em", "processos", ["estado", "vence_em"])
    op.create_index("ix_processos_criado_em", "processos", ["principal", "criado_em"])
    op.create_table(
        "processos_passos",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("principal", sa.String(60), nullable=False),
        sa.Column("processo", sa.String(64), nullable=False),
        sa.Column("versao", sa.Integer, nullable=False),
        sa.Column("atividade", sa.String(255)),
        sa.Column("evento", sa.String(40), nullable=False),
        sa.Column("detalhe", sa.Text),
        sa.Column("quando", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["principal", "processo"], ["processos.principal", "processos.id"]),
    )
    op.create_index("ix_processos_passos_processo", "processos_passos", ["principal", "processo"])
