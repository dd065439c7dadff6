"""Corridas: prices that SQL compares and sums rightly on SQLite too."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"

# As 0006 did for propostas: SQLite has no decimals, so it counts cents, and `price` is what they amount to.
CENTS = {
    "sqlite": (
        """ALTER TABLE rides ADD COLUMN price_cents INTEGER
           CHECK (typeof(price_cents) IN ('integer', 'null') AND price_cents BETWEEN 0 AND 9999999999)""",
        # Far below 2^53, so that rounding finds the very cents of whatever form the text has.
        "UPDATE rides SET price_cents = CAST(round(CAST(price AS REAL) * 100) AS INTEGER) WHERE price IS NOT NULL",
        "ALTER TABLE rides DROP COLUMN price",
        "ALTER TABLE rides ADD COLUMN price NUMERIC GENERATED ALWAYS AS (price_cents / 100.0) VIRTUAL",
    ),
    "postgresql": (
        """ALTER TABLE rides ADD COLUMN price_cents BIGINT
           GENERATED ALWAYS AS (CAST(price * 100 AS BIGINT)) STORED""",
    ),
}


def upgrade() -> None:
    """Change the column; every price stays what it was."""
    for statement in CENTS[op.get_bind().dialect.name]:
        op.execute(statement)
