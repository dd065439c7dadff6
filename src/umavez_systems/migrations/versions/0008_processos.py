"""Processos: one protocolo is paid under one key, whichever instance asks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table. Its primary key is what makes a second payment impossible."""
    op.create_table(
        "processos_pagamentos",
        sa.Column("operadora", sa.String(6), primary_key=True),
        sa.Column("protocolo", sa.String(64), primary_key=True),
        sa.Column("principal", sa.String(60), nullable=False),
        sa.Column("chave", sa.String(255), nullable=False),
        sa.Column("criado_em", sa.BigInteger, nullable=False),
    )
