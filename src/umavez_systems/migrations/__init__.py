"""Migrations: one Alembic history for all systems, run by `umavez serve` and `umavez systems migrate`."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, create_engine, text

LOCK = 0x756D617665  # "umave": one process migrates, the others wait for it


def sqlalchemy_url(url: str) -> str:
    """The URL as SQLAlchemy spells it, on the driver that the systems use."""
    scheme, _, rest = url.partition(":")
    return f"postgresql+psycopg:{rest}" if scheme.startswith("postgres") else f"{scheme}:{rest.partition('?')[0]}"


def migrate(url: str) -> None:
    """Bring the systems' tables to the newest version. Safe to repeat, and from several processes at once."""
    engine = create_engine(sqlalchemy_url(url))
    try:
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            else:
                connection.exec_driver_sql("PRAGMA journal_mode = DELETE")
            _upgrade(connection)
    finally:
        engine.dispose()


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
