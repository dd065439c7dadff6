"""Fiscal (seed 004): organisations, documents, acts, proof, numbering ranges and the query budget."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from umavez.sequences import Sequences

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the tables. Times are milliseconds since the epoch, as the engine's are."""
    Sequences().migrate(op.get_bind())
    op.create_table(
        "fiscal_organizacoes",
        sa.Column("id", sa.String(130), primary_key=True),
        sa.Column("principal", sa.String(60), nullable=False),
        sa.Column("nome", sa.String(60), nullable=False),
        sa.Column("cnpj", sa.String(14), nullable=False),
        sa.Column("uf", sa.String(2), nullable=False),
        sa.Column("ambiente", sa.String(12), nullable=False),
        sa.Column("emitente", sa.Text, nullable=False),
        sa.Column("certificado", sa.Text, nullable=False),
        sa.Column("certificado_vence_em", sa.BigInteger, nullable=False),
        sa.Column("criado_em", sa.BigInteger, nullable=False),
        sa.CheckConstraint("ambiente IN ('simulador', 'homologacao', 'producao')", name="ck_fiscal_ambiente"),
    )
    op.create_table(
        "faixas_numeracao",
        sa.Column("org_id", sa.String(130), sa.ForeignKey("fiscal_organizacoes.id"), primary_key=True),
        sa.Column("modelo", sa.String(8), primary_key=True),
        sa.Column("serie", sa.Integer, primary_key=True),
        sa.Column("primeiro_numero", sa.BigInteger, nullable=False),
        sa.Column("ultimo_numero", sa.BigInteger, nullable=False),
        sa.Column("bloqueado", sa.Boolean, nullable=False),
    )
    op.create_table("documentos_fiscais", *_document_columns())
    op.create_index("idx_df_chave_acesso", "documentos_fiscais", ["chave_acesso"])
    op.create_index("ix_df_org_criado", "documentos_fiscais", ["org_id", "criado_em"])
    op.create_index("ix_df_numero", "documentos_fiscais", ["org_id", "modelo", "serie", "numero"])
    op.create_index("ix_df_estado_proximo", "documentos_fiscais", ["estado", "proximo_em"])
    op.create_table(
        "fiscal_atos",
        sa.Column("org_id", sa.String(130), sa.ForeignKey("fiscal_organizacoes.id"), primary_key=True),
        sa.Column("nome", sa.String(80), primary_key=True),
        sa.Column("acao", sa.String(12), nullable=False),
        sa.Column("documento_id", sa.String(32), sa.ForeignKey("documentos_fiscais.id")),
        sa.Column("estado", sa.String(16), nullable=False),
        sa.Column("xml", sa.LargeBinary, nullable=False),
        sa.Column("texto", sa.Text, nullable=False),
        sa.Column("sequencia", sa.Integer, nullable=False),
        sa.Column("tipo", sa.String(8), nullable=False),
        sa.Column("serie", sa.Integer),
        sa.Column("primeiro", sa.BigInteger),
        sa.Column("ultimo", sa.BigInteger),
        sa.Column("codigo", sa.String(20)),
        sa.Column("motivo", sa.Text),
        sa.Column("protocolo", sa.String(40)),
        sa.Column("proximo_em", sa.BigInteger),
        sa.Column("criado_em", sa.BigInteger, nullable=False),
        sa.CheckConstraint(
            "estado IN ('PENDENTE', 'RECUSA', 'FEITO', 'RECUSADO', 'NAO_REGISTRADO')", name="ck_fiscal_atos_estado"
        ),
    )
    op.create_index("ix_fiscal_atos_documento", "fiscal_atos", ["documento_id"])
    op.create_index("ix_fiscal_atos_estado", "fiscal_atos", ["estado", "proximo_em"])
    op.create_table(
        "fiscal_provas",
        sa.Column("documento", sa.String(80), primary_key=True),
        sa.Column("sequencia", sa.Integer, primary_key=True),
        sa.Column("tipo", sa.String(20), nullable=False),
        sa.Column("quando", sa.BigInteger, nullable=False),
        sa.Column("conteudo", sa.Text, nullable=False),
        sa.Column("anterior", sa.String(64), nullable=False),
        sa.Column("resumo", sa.String(64), nullable=False),
    )
    op.create_table(
        "fiscal_consumo",
        sa.Column("org_id", sa.String(130), primary_key=True),
        sa.Column("alvo", sa.String(80), primary_key=True),
        sa.Column("momentos", sa.Text, nullable=False),
        sa.Column("bloqueado_ate", sa.BigInteger, nullable=False),
    )


def _document_columns() -> list[sa.schema.SchemaItem]:
    states = (
        "'RASCUNHO', 'TRANSMITIDO', 'AUTORIZADO', 'REJEITADO', 'DENEGADO', 'CANCELAMENTO_PENDENTE', 'CANCELADO',"
        " 'INUTILIZADO', 'INDETERMINADO', 'DIVERGENTE'"
    )
    return [
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("org_id", sa.String(130), sa.ForeignKey("fiscal_organizacoes.id"), nullable=False),
        sa.Column("principal", sa.String(60), nullable=False),
        sa.Column("idempotencia_key", sa.String(255), unique=True),
        sa.Column("impressao", sa.String(80)),
        sa.Column("tipo", sa.String(8), nullable=False),
        sa.Column("modelo", sa.String(8), nullable=False),
        sa.Column("serie", sa.Integer, nullable=False),
        sa.Column("numero", sa.BigInteger, nullable=False),
        sa.Column("tp_emis", sa.String(1), nullable=False),
        sa.Column("id_idempotencia", sa.String(80), nullable=False),
        sa.Column("chave_natural", sa.String(120), nullable=False),
        sa.Column("chave_acesso", sa.String(50)),
        sa.Column("estado", sa.String(24), nullable=False),
        sa.Column("versao", sa.Integer, nullable=False),
        sa.Column("origem", sa.String(12), nullable=False),
        sa.Column("pedido", sa.Text, nullable=False),
        sa.Column("total", sa.String(24), nullable=False),
        sa.Column("xml_assinado", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.String(60), nullable=False),
        sa.Column("protocolo", sa.String(40)),
        sa.Column("protocolo_xml", sa.Text),
        sa.Column("codigo", sa.String(20)),
        sa.Column("motivo", sa.Text),
        sa.Column("tentativas", sa.Integer, nullable=False),
        sa.Column("emitido_em", sa.BigInteger, nullable=False),
        sa.Column("enviado_em", sa.BigInteger),
        sa.Column("autorizado_em", sa.BigInteger),
        sa.Column("epec_em", sa.BigInteger),
        sa.Column("ausente_em", sa.BigInteger),
        sa.Column("proximo_em", sa.BigInteger),
        sa.Column("inutilizacao", sa.String(80)),
        sa.Column("prova_sequencia", sa.Integer, nullable=False),
        sa.Column("prova_resumo", sa.String(64), nullable=False),
        sa.Column("criado_em", sa.BigInteger, nullable=False),
        sa.Column("mudado_em", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("id_idempotencia", name="uk_id_idempotencia"),
        sa.UniqueConstraint("chave_natural", name="uk_df_chave_natural"),
        sa.CheckConstraint(f"estado IN ({states})", name="ck_df_estado"),
    ]
