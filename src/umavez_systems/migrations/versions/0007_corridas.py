"""Corridas: one active ride for each passenger, one live token for each key, offers to drivers that end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

NOW = sa.text("CURRENT_TIMESTAMP")
ACTIVE = "status IN ('requested', 'accepted', 'started')"
WAITING = "status = 'requested' AND driver_id IS NULL"


def upgrade() -> None:
    """Add the columns, the indexes and the table of declined offers."""
    _rides()
    _confirmations()
    _declines()


def _rides() -> None:
    op.add_column("rides", sa.Column("sole", sa.Boolean, nullable=False, server_default=sa.true()))
    op.add_column("rides", sa.Column("offer_ends_ms", sa.BigInteger))
    # Rides that were made before the rule and break it run on to their end; only the newest of a passenger counts.
    op.execute(
        f"UPDATE rides SET sole = false WHERE {ACTIVE} AND EXISTS (SELECT 1 FROM rides later"  # noqa: S608  # our own words
        " WHERE later.principal = rides.principal AND later.passenger_id = rides.passenger_id"
        f" AND later.{ACTIVE} AND later.id > rides.id)"
    )
    _partial("uq_rides_active_passenger", "rides", ["principal", "passenger_id"], f"sole AND {ACTIVE}", unique=True)
    _partial("ix_rides_waiting", "rides", ["id"], WAITING)
    _partial("ix_rides_offer_ends_ms", "rides", ["offer_ends_ms"], "offer_ends_ms IS NOT NULL")


def _confirmations() -> None:
    columns = (
        sa.Column("principal", sa.String(60), nullable=False, server_default="local"),
        sa.Column("request_key", sa.String(255)),
        sa.Column("request_mark", sa.String(80)),
        sa.Column("superseded", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    for column in columns:
        op.add_column("ride_confirmations", column)
    op.execute(
        "UPDATE ride_confirmations SET principal = coalesce((SELECT min(principal) FROM ride_confirmation_audit"
        " WHERE operation = 'issued' AND token_digest = confirmation_token), principal)"
    )
    op.create_index("uq_ride_confirmations_key", "ride_confirmations", ["principal", "request_key"], unique=True)
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("ride_confirmation_audit", "operation", type_=sa.String(40))
    # What happened to a token, and who was refused one, are told apart.
    op.execute(
        "UPDATE ride_confirmation_audit SET operation = 'refused_' || operation"
        " WHERE operation IN ('expired', 'not_owned', 'invalid', 'used', 'in_progress')"
    )


def _declines() -> None:
    op.create_table(
        "ride_declines",
        sa.Column("ride_id", sa.String(30), sa.ForeignKey("rides.id"), primary_key=True),
        sa.Column("driver_id", sa.String(60), sa.ForeignKey("drivers.id"), primary_key=True),
        sa.Column("why", sa.String(20), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
    )


def _partial(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    text = sa.text(where)
    op.create_index(name, table, columns, unique=unique, postgresql_where=text, sqlite_where=text)
