"""The tables of an SQLite file: made where they are missing, and brought from version 1 to 2."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from importlib.resources import files

from umavez.errors import TABLE_FOREIGN, SchemaOutdated
from umavez.stores.rows import KEY, WRITE
from umavez.stores.sqlite.statements import SCHEMA_VERSION, VERSION

_THERE = "SELECT name FROM sqlite_master WHERE name IN ('umavez_meta', 'idempotency_records')"
_COLUMNS = f"{KEY}, fence, created_at, updated_at, {WRITE}"
# SQLite adds no primary key to a table: the rows are put aside, and back into a new one. Not by renaming, which would
# take the views along that somebody made on the table.
_ASIDE = (
    f"CREATE TEMPORARY TABLE umavez_records_1 AS SELECT {_COLUMNS} FROM idempotency_records",
    "DROP VIEW IF EXISTS idempotency_records_readable",
    "DROP TABLE idempotency_records",
)
_BACK = (
    f"INSERT INTO idempotency_records (id, {_COLUMNS}) SELECT fence, {_COLUMNS} FROM umavez_records_1 ORDER BY fence",
    "DROP TABLE umavez_records_1",
)
_OURS = "SELECT count(*) FROM pragma_table_info('idempotency_records') WHERE name = 'digest'"
_ORIGINS = "SELECT count(*) FROM pragma_table_info('idempotency_records') WHERE name = 'origin'"
_DONE = f"UPDATE umavez_meta SET value = {VERSION} WHERE name = 'schema' AND value < {VERSION}"


def create_tables(connection: sqlite3.Connection) -> None:
    """Make or upgrade the tables, in one transaction that no other process can come between.

    Raises SchemaOutdated, and touches nothing, where a newer umavez made them, or somebody else a table of that name.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        before = _installed(connection)
        for statement in _statements(before):
            connection.execute(statement)
        if before == VERSION and not connection.execute(_ORIGINS).fetchone()[0]:
            connection.execute("ALTER TABLE idempotency_records ADD COLUMN origin TEXT")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def whole(connection: sqlite3.Connection) -> bool:
    """Whether everything of this version is there. It is looked at without waiting for whoever writes."""
    made = set(re.findall(r"IF NOT EXISTS (\w+)", _text()))
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    return made <= there and _installed(connection) == VERSION and bool(connection.execute(_ORIGINS).fetchone()[0])


def _installed(connection: sqlite3.Connection) -> int:
    """The version of the tables; 0 where one of them is missing. Raises SchemaOutdated."""
    there = {name for (name,) in connection.execute(_THERE)}
    if "idempotency_records" in there and not connection.execute(_OURS).fetchone()[0]:
        raise SchemaOutdated(TABLE_FOREIGN)
    row = connection.execute(SCHEMA_VERSION).fetchone() if "umavez_meta" in there else None
    version = 0 if row is None else int(row[0])
    if version > VERSION:
        raise SchemaOutdated(f"The tables are at version {version} and this umavez knows {VERSION}; upgrade umavez.")
    return version if len(there) == 2 else 0


def _statements(before: int) -> Sequence[str]:
    made = [part.strip() for part in _text().split(";") if part.strip()]
    if before == VERSION:
        return made
    return (*_ASIDE, *made, *_BACK, _DONE) if before else (*made, _DONE)


def _text() -> str:
    """The statements, without their comments."""
    return re.sub(r"--[^\n]*", "", files("umavez.stores.sqlite").joinpath("schema.sql").read_text("utf-8"))
