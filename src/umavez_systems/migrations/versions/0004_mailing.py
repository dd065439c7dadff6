"""Mailing (seed 002): mailings and mailing_entries with the seed's columns and names, and what they need beside."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

NOW = sa.text("CURRENT_TIMESTAMP")
# SQLite has neither UUIDs nor timestamps: texts, which sort and compare in the same way.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
UUID = sa.Uuid().with_variant(sa.Text(), "sqlite")
# Compared as bytes on both: an address has no alphabet, and its index is filled in the order in which lists are sorted.
EMAIL = sa.String(255, collation="C").with_variant(sa.String(255), "sqlite")
_HEX = "lower(hex(randomblob({})))"
RANDOM_ID = " || '-' || ".join(
    (
        _HEX.format(4),
        _HEX.format(2),
        f"'4' || substr({_HEX.format(2)}, 2)",
        f"'8' || substr({_HEX.format(2)}, 2)",
        _HEX.format(6),
    )
)
COUNTERS = (
    *("linhas", "aceitas", "duplicadas", "invalidas", "em_branco"),
    *("entradas", "pendentes", "enviando", "enviados", "falhas", "invalidos", "suprimidos", "desconhecidos"),
)


def upgrade() -> None:
    """Create the tables."""
    _mailings()
    _entries()
    _around()


def _identity() -> sa.Column[object]:
    postgres = op.get_context().dialect.name == "postgresql"
    default = sa.text("gen_random_uuid()" if postgres else f"({RANDOM_ID})")
    return sa.Column("id", UUID, primary_key=True, server_default=default)


def _stamps() -> tuple[sa.Column[object], sa.Column[object]]:
    return sa.Column("created_at", MOMENT, server_default=NOW), sa.Column("updated_at", MOMENT, server_default=NOW)


def _mailings() -> None:
    op.create_table(
        "mailings",
        _identity(),
        sa.Column("filename", sa.String(255), nullable=False),
        sa.Column("storage_url", sa.Text),
        sa.Column("status", sa.String(50), server_default="PENDING"),
        sa.Column("last_attempt", MOMENT),
        *_stamps(),
        # Beyond the seed. `filename` carries its principal (decision 0008); `nome` is the name as it was sent.
        sa.Column("principal", sa.String(60), nullable=False, server_default="local"),
        sa.Column("nome", sa.String(255), nullable=False, server_default=""),
        sa.Column("identidade", sa.String(10), nullable=False, server_default="nome"),
        sa.Column("content_hash", sa.String(64), nullable=False, server_default=""),
        sa.Column("tamanho", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("reingestao", sa.String(10), nullable=False, server_default="manter"),
        sa.Column("duvida", sa.String(10), nullable=False, server_default="segurar"),
        sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
        sa.Column("pedido", sa.String(10)),
        sa.Column("motivo", sa.Text),
        sa.Column("remetente", sa.String(320)),
        sa.Column("assunto", sa.Text, nullable=False, server_default=""),
        sa.Column("texto", sa.Text),
        sa.Column("html", sa.Text),
        sa.Column("dialeto", sa.Text),
        sa.Column("posicao", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("ingerido", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("cursor", sa.String(255), nullable=False, server_default=""),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in COUNTERS),
    )
    by_name = sa.text("identidade = 'nome'")
    op.create_index(
        "idx_mailings_filename", "mailings", ["filename"], unique=True, postgresql_where=by_name, sqlite_where=by_name
    )
    by_content = sa.text("content_hash <> ''")
    op.create_index(
        "idx_mailings_filename_content_hash",
        "mailings",
        ["filename", "content_hash"],
        unique=True,
        postgresql_where=by_content,
        sqlite_where=by_content,
    )
    op.create_index("ix_mailings_principal", "mailings", ["principal", "created_at"])


def _entries() -> None:
    op.create_table(
        "mailing_entries",
        _identity(),
        sa.Column("mailing_id", sa.String(255), nullable=False),
        sa.Column("email", EMAIL, nullable=False),
        sa.Column("token", sa.String(255), nullable=False),
        sa.Column("status", sa.String(50), server_default="PENDING"),
        sa.Column("attempts", sa.Integer, server_default="0"),
        sa.Column("last_attempt", MOMENT),
        sa.Column("external_id", sa.String(255)),
        *_stamps(),
        # Beyond the seed: where it came from, the intent before the call, and the answer after it.
        sa.Column("linha", sa.BigInteger),
        sa.Column("variaveis", sa.Text),
        sa.Column("epoch", sa.Integer),
        sa.Column("message_id", sa.String(255)),
        sa.Column("data", sa.BigInteger),
        sa.Column("provedor", sa.String(40)),
        sa.Column("resposta", sa.Text),
        sa.Column("depois_de", sa.BigInteger),
        sa.UniqueConstraint("mailing_id", "email", name="unique_mailing_email"),
    )
    op.create_index("idx_mailing_entries_mailing_id", "mailing_entries", ["mailing_id"])
    op.create_index("idx_mailing_entries_status", "mailing_entries", ["status"])


def _around() -> None:
    op.create_table(
        "mailing_suppressions",
        sa.Column("principal", sa.String(60), primary_key=True),
        sa.Column("email", sa.String(255), primary_key=True),
        sa.Column("motivo", sa.String(20), nullable=False),
        sa.Column("detalhe", sa.Text),
        sa.Column("created_at", MOMENT, server_default=NOW),
    )
    op.create_table(
        "mailing_templates",
        sa.Column("principal", sa.String(60), primary_key=True),
        sa.Column("nome", sa.String(60), primary_key=True),
        sa.Column("assunto", sa.Text, nullable=False),
        sa.Column("texto", sa.Text),
        sa.Column("html", sa.Text),
        sa.Column("updated_at", MOMENT, server_default=NOW),
    )
    op.create_table(
        "mailing_limits",
        sa.Column("nome", sa.String(60), primary_key=True),
        sa.Column("livre_em", sa.BigInteger, nullable=False),
        sa.Column("fator", sa.Double, nullable=False, server_default="1"),
        sa.Column("mudou_em", sa.BigInteger, nullable=False, server_default="0"),
    )
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "mailing_sink",
        sa.Column("id", number, primary_key=True, autoincrement=True),
        sa.Column("principal", sa.String(60), nullable=False),
        sa.Column("message_id", sa.String(255), nullable=False),
        sa.Column("remetente", sa.String(320), nullable=False),
        sa.Column("destinatario", sa.String(320), nullable=False),
        sa.Column("assunto", sa.Text, nullable=False),
        sa.Column("conteudo", sa.LargeBinary, nullable=False),
        sa.Column("created_at", MOMENT, server_default=NOW),
    )
    op.create_index("ix_mailing_sink_principal", "mailing_sink", ["principal", "id"])
    # Not unique: a mail that comes twice must be seen twice.
    op.create_index("ix_mailing_sink_message_id", "mailing_sink", ["message_id"])
    op.create_table(
        "mailing_history",
        sa.Column("id", number, primary_key=True, autoincrement=True),
        sa.Column("mailing_id", sa.String(255), nullable=False),
        sa.Column("entry_id", sa.String(64)),
        sa.Column("evento", sa.String(40), nullable=False),
        sa.Column("por", sa.String(255), nullable=False),
        sa.Column("motivo", sa.Text),
        sa.Column("created_at", MOMENT, server_default=NOW),
    )
    op.create_index("ix_mailing_history_mailing_id", "mailing_history", ["mailing_id"])
