"""Corridas (seed 001): ride_confirmations with the seed's columns, and what rides, fences and drivers need."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# SQLite would keep a DECIMAL as a float; as text it keeps every digit.
DECIMAL = sa.Numeric(10, 2).with_variant(sa.Text(), "sqlite")
NOW = sa.text("CURRENT_TIMESTAMP")
ACTIVE = "driver_id IS NOT NULL AND status IN ('requested', 'accepted', 'started')"
FREE = "available AND ride_id IS NULL"


def upgrade() -> None:
    """Create the tables."""
    _fleet()
    _rides()
    _confirmations()


def _fleet() -> None:
    op.create_table(
        "communities",
        sa.Column("id", sa.String(60), primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
        sa.Column("geometry", sa.Text, nullable=False),
        sa.Column("changed_ms", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
    )
    op.create_table(
        "drivers",
        sa.Column("id", sa.String(60), primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("community_id", sa.String(60)),
        sa.Column("lat", sa.Double, nullable=False),
        sa.Column("lng", sa.Double, nullable=False),
        sa.Column("available", sa.Boolean, nullable=False),
        sa.Column("ride_id", sa.String(30)),
        sa.Column("changed_ms", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
    )
    op.create_index("ix_drivers_changed_ms", "drivers", ["changed_ms"])
    op.create_index(
        "ix_drivers_free", "drivers", ["lat", "lng"], postgresql_where=sa.text(FREE), sqlite_where=sa.text(FREE)
    )
    op.create_index("ix_drivers_ride_id", "drivers", ["ride_id"])


def _rides() -> None:
    op.create_table(
        "rides",
        sa.Column("id", sa.String(30), primary_key=True),
        sa.Column("principal", sa.String(60), nullable=False),
        sa.Column("passenger_id", sa.String(200), nullable=False),
        sa.Column("type", sa.String(40), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("out_of_fence", sa.Boolean, nullable=False),
        sa.Column("community_id", sa.String(60)),
        sa.Column("driver_id", sa.String(60), sa.ForeignKey("drivers.id")),
        sa.Column("passenger_lat", sa.Double, nullable=False),
        sa.Column("passenger_lng", sa.Double, nullable=False),
        sa.Column("origin", sa.String(500)),
        sa.Column("destination", sa.String(500)),
        sa.Column("price", DECIMAL),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.CheckConstraint(
            "status IN ('requested', 'accepted', 'started', 'finished', 'cancelled')", name="ck_rides_status"
        ),
    )
    # The last line of defence: even a wrong program cannot give one driver to two rides that are under way.
    op.create_index(
        "uq_rides_active_driver",
        "rides",
        ["driver_id"],
        unique=True,
        postgresql_where=sa.text(ACTIVE),
        sqlite_where=sa.text(ACTIVE),
    )
    op.create_index("ix_rides_passenger_id", "rides", ["passenger_id"])
    op.create_table(
        "ride_history",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("ride_id", sa.String(30), sa.ForeignKey("rides.id"), nullable=False),
        sa.Column("from_status", sa.String(20)),
        sa.Column("to_status", sa.String(20), nullable=False),
        sa.Column("actor", sa.String(270), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
    )
    op.create_index("ix_ride_history_ride_id", "ride_history", ["ride_id"])


def _confirmations() -> None:
    op.create_table(
        "ride_confirmations",
        sa.Column("id", sa.String(30), primary_key=True),
        sa.Column("passenger_id", sa.String(200), nullable=False),
        # SHA-256 of the token in hexadecimal: the token itself is stored nowhere.
        sa.Column("confirmation_token", sa.String(64), nullable=False),
        sa.Column("ride_data", sa.JSON, nullable=False),
        sa.Column("is_used", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("used_at", sa.DateTime(timezone=True)),
        sa.Column("created_ride_id", sa.String(30)),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
    )
    op.create_index(
        "uq_ride_confirmations_confirmation_token", "ride_confirmations", ["confirmation_token"], unique=True
    )
    op.create_index("ix_ride_confirmations_passenger_id", "ride_confirmations", ["passenger_id"])
    op.create_index("ix_ride_confirmations_expires_at", "ride_confirmations", ["expires_at"])
    op.create_table(
        "ride_confirmation_audit",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("operation", sa.String(20), nullable=False),
        sa.Column("principal", sa.String(60), nullable=False),
        sa.Column("passenger_id", sa.String(200), nullable=False),
        sa.Column("token_digest", sa.String(64), nullable=False),
        sa.Column("ride_id", sa.String(30)),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
    )
    op.create_index("ix_ride_confirmation_audit_passenger_id", "ride_confirmation_audit", ["passenger_id"])
    op.create_index("ix_ride_confirmation_audit_operation", "ride_confirmation_audit", ["operation"])
