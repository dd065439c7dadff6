"""Mailing: indexes that cost nothing while a list is read in, and one of entries that wait for their moment."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"

# The seed's names and leading columns. A mailing's entries are found by unique_mailing_email, which begins with it, and
# lie beside each other, which is all that BRIN needs to know. Who asks by status looks for the few: nearly all entries
# are PENDING first and SENT last, and an index of nearly all rows is one that nobody's plan uses.
POSTGRES = (
    "DROP INDEX idx_mailing_entries_mailing_id",
    "CREATE INDEX idx_mailing_entries_mailing_id ON mailing_entries USING brin (mailing_id)",
    "DROP INDEX idx_mailing_entries_status",
    (
        "CREATE INDEX idx_mailing_entries_status ON mailing_entries (status, mailing_id)"
        " WHERE status NOT IN ('PENDING', 'SENT')"
    ),
)
WAITING = (
    "CREATE INDEX ix_mailing_entries_depois_de ON mailing_entries (mailing_id, depois_de) WHERE depois_de IS NOT NULL"
)


def upgrade() -> None:
    """Change the indexes; the entries stay as they are. SQLite keeps the seed's: it proves no condition but IS NULL."""
    for statement in POSTGRES if op.get_bind().dialect.name == "postgresql" else ():
        op.execute(statement)
    op.execute(WAITING)
