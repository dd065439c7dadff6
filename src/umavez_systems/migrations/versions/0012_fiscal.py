"""Fiscal: documents that an authority destroyed and issued again are kept and shown (São Paulo, alert 217)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0010"


def upgrade() -> None:
    """Add the column: the numbers of both, as JSON; empty for nearly every document."""
    op.add_column("documentos_fiscais", sa.Column("incidente", sa.Text))
