"""Migrations: one Alembic history for all systems, run by `umavez migrate` and `umavez serve`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg.conninfo import make_conninfo
from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from umavez import StoreUnavailable
from umavez.postgres import between_transactions, given_in, patience

LOCK = 0x756D617665  # "umave": one process migrates, the others wait for it
PATIENCE = 60
"""Seconds to wait for another process that migrates."""
BRIEF = "300ms"
"""How long a change of a table waits for its lock: its callers queue behind it, so it rather tries again."""
VERSION_TABLE = "systems_version"


def migrate(url: str) -> str:
    """Bring the systems' tables to the newest version; says in a sentence what was done.

    Safe to repeat, and from several processes at once. Where they cannot be, nothing is done. Raises StoreUnavailable.
    """
    scheme = url.partition(":")[0]
    if scheme not in ("sqlite", "postgresql", "postgres"):
        return "The systems keep their tables in SQLite or PostgreSQL; none were made here."
    try:
        if scheme != "sqlite":
            return between_transactions(lambda: _upgraded_on_server(url))
        with _file(url) as connection:
            if connection is None:
                return "The systems need a file without WAL: name it with ?journal=delete to have their tables in it."
            return _upgrade(connection)
    except (DBAPIError, sqlite3.Error, psycopg.Error) as error:
        raise StoreUnavailable("The systems' tables could not be made; look at the database and try again.") from error


@contextmanager
def _file(url: str) -> Iterator[Connection | None]:
    path = Path(unquote(url.partition(":///")[2].partition("?")[0]))

    def opened() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)

    with create_engine("sqlite://", creator=opened, poolclass=NullPool).connect() as connection:
        if connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal":
            yield None
            return
        # Begun by hand and at once: the driver would begin at the first INSERT, with half of the tables made.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection
        connection.commit()


@contextmanager
def _server(url: str) -> Iterator[Connection]:
    # libpq reads the URL itself: SQLAlchemy knows no URL without a host, nor one with several.
    def opened() -> psycopg.Connection:
        told: dict[str, Any] = dict(given_in(url))
        return psycopg.connect(make_conninfo("", **{**patience(told, 10), **told}))

    with create_engine("postgresql+psycopg://", creator=opened, poolclass=NullPool).begin() as connection:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BRIEF}'")
        yield connection


def _upgraded_on_server(url: str) -> str:
    """One attempt. Raises psycopg's LockNotAvailable, with nothing changed, where somebody is in the way."""
    try:
        with _server(url) as connection:
            return _upgrade(connection)
    except DBAPIError as error:
        if isinstance(error.orig, LockNotAvailable):
            raise error.orig from error
        raise


def _upgrade(connection: Connection) -> str:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    newest = ScriptDirectory.from_config(config).get_current_head()
    known = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    if known.get_current_revision() == newest:
        return f"The tables of the systems were already at version {newest}."
    command.upgrade(config, "head")
    return f"The tables of the systems are now at version {newest}."
