"""Processos: demonstrativos that were received, their glosas by item with a recurso each, and what happened to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the tables. Amounts are centavos; days are ISO 8601, which sort as texts; no patient is in them."""
    op.create_table(
        "processos_demonstrativos",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("principal", sa.String(60), nullable=False),
        sa.Column("operadora", sa.String(6), nullable=False),
        sa.Column("protocolo", sa.String(64), nullable=False),
        sa.Column("tipo", sa.String(10), nullable=False),
        sa.Column("numero", sa.String(20), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("emissao", sa.String(10), nullable=False),
        sa.Column("pagamento", sa.String(10)),
        sa.Column("informado_centavos", sa.BigInteger, nullable=False),
        sa.Column("liberado_centavos", sa.BigInteger, nullable=False),
        sa.Column("recebido_em", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("principal", "operadora", "protocolo", "tipo", "numero", name="uq_demonstrativos_numero"),
        sa.CheckConstraint("liberado_centavos BETWEEN 0 AND informado_centavos", name="ck_demonstrativos_liberado"),
    )
    op.create_table(
        "processos_glosas",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("demonstrativo", sa.Integer, sa.ForeignKey("processos_demonstrativos.id"), nullable=False),
        sa.Column("principal", sa.String(60), nullable=False),
        sa.Column("operadora", sa.String(6), nullable=False),
        sa.Column("protocolo", sa.String(64), nullable=False),
        sa.Column("guia", sa.String(20), nullable=False),
        sa.Column("item", sa.Integer, nullable=False),
        sa.Column("codigo", sa.String(4), nullable=False),
        sa.Column("glosa_centavos", sa.BigInteger, nullable=False),
        sa.Column("prazo", sa.String(10), nullable=False),
        # Whose recurso it is: a key, which can be asked about; then the payer's number for it and what became of it.
        sa.Column("recurso_chave", sa.String(255)),
        sa.Column("recurso_numero", sa.String(20)),
        sa.Column("recurso_protocolo", sa.String(64)),
        sa.Column("recurso_situacao", sa.String(20)),
        sa.Column("recursado_centavos", sa.BigInteger),
        sa.UniqueConstraint(
            "principal", "operadora", "protocolo", "guia", "item", "codigo", name="uq_processos_glosas_item"
        ),
        sa.CheckConstraint("recursado_centavos BETWEEN 1 AND glosa_centavos", name="ck_processos_glosas_recursado"),
    )
    op.create_index("ix_processos_glosas_prazo", "processos_glosas", ["principal", "prazo", "id"])
    op.create_table(
        "processos_eventos",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("principal", sa.String(60), nullable=False),
        sa.Column("operadora", sa.String(6), nullable=False),
        sa.Column("protocolo", sa.String(64), nullable=False),
        sa.Column("evento", sa.String(40), nullable=False),
        sa.Column("detalhe", sa.Text, nullable=False),
        sa.Column("quando", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_processos_eventos_protocolo", "processos_eventos", ["principal", "operadora", "protocolo"])
