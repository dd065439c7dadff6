"""Tables of messages and numbers come into being, or up to date, in the transaction of whoever asks for it.

On PostgreSQL every change is tried for a moment only, and taken back where somebody's transaction is in its way: who
waits for a table's lock has all its callers in line behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files

from umavez.errors import SchemaOutdated, StoreUnavailable
from umavez.sql.connection import Dialect, Row
from umavez.sql.flow import Ask, SqlFlow, Write
from umavez.stores import MIGRATING
from umavez.stores.postgres import upgrade as online

PATIENCE = 60
"""Seconds that a migration waits for another."""

_LOCK = "concat('umavez migrate ', md5(database()))"
"""The name at which MariaDB's migrations of one database queue."""

_THERE = {
    Dialect.SQLITE: "SELECT count(*) FROM sqlite_master WHERE name = ?",
    Dialect.POSTGRES: "SELECT to_regclass(?) IS NOT NULL",
    Dialect.MARIADB: "SELECT count(*) FROM information_schema.tables"
    " WHERE table_schema = database() AND table_name = ?",
}
"""Whether a table is there."""

_LIMITED = "SELECT set_config('lock_timeout', ?, true), set_config('statement_timeout', ?, true)"
"""How long a lock and a statement may take until the transaction ends."""

_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")

_ATTEMPT = """
DO $attempt$
BEGIN
    PERFORM set_config('lock_timeout', '{milliseconds}ms', true);
    {changes};
    UPDATE umavez_meta SET value = {version} WHERE name = '{name}';
EXCEPTION WHEN lock_not_available THEN
    NULL;
END
$attempt$
"""
"""All changes or none, and every lock given back with them: the block is a transaction inside the caller's."""


def migration(package: str, name: str, newest: int, dialect: Dialect) -> SqlFlow[str]:
    """Create or upgrade the tables that `package`'s schema folder describes; safe to repeat, and by many at once.

    Tables that are up to date are left alone: not even a lock on them is asked for. Raises SchemaOutdated where a
    newer umavez made them, and StoreUnavailable where others migrate, or hold a table, for too long.
    """
    limits = yield from _queue_to_migrate(dialect)
    statements = _statements(package, dialect)
    before = yield from _installed(name, statements, dialect)
    if before > newest:
        raise SchemaOutdated(
            f"The tables of {name} are at version {before} and this umavez knows {newest}; upgrade umavez."
        )
    if before < newest:
        yield from (_stepping_back if dialect is Dialect.POSTGRES else _at_once)(name, newest, statements)
    if limits:
        yield Ask(_LIMITED, limits)
    if dialect is Dialect.MARIADB:
        yield Ask(f"SELECT RELEASE_LOCK({_LOCK})")
    return f"The tables of {name} {'were already' if before == newest else 'are now'} at version {newest}."


def _at_once(name: str, newest: int, statements: Sequence[str]) -> SqlFlow[None]:
    """SQLite has its lock already. On MariaDB tables are only made, and what is not there yet has no callers."""
    for statement in statements:
        yield Write(statement)
    yield Write("UPDATE umavez_meta SET value = ? WHERE name = ?", (newest, name))


def _stepping_back(name: str, newest: int, statements: Sequence[str]) -> SqlFlow[None]:
    """Try for a moment, step back and let callers pass, for as long as patience lasts. Raises StoreUnavailable."""
    brief = online.BRIEF
    changes = ";\n    ".join(statements)
    attempt = _ATTEMPT.format(milliseconds=int(brief * 1000), changes=changes, name=name, version=newest)
    for _ in range(max(1, int(online.PATIENCE / (2 * brief)))):
        yield Write(attempt)
        if (yield from _installed(name, statements, Dialect.POSTGRES)) == newest:
            return
        yield Ask("SELECT pg_sleep(?)", (brief,))
    raise online.held_up(f"a table of {name}")


def _queue_to_migrate(dialect: Dialect) -> SqlFlow[Row]:
    """Wait until nobody else migrates this database; returns the limits of the caller's transaction on PostgreSQL.

    SQLite needs no more than the transaction it is in.
    """
    limits: Row = ()
    if dialect is Dialect.POSTGRES:
        (limits,) = yield Ask("SELECT current_setting('lock_timeout'), current_setting('statement_timeout')")
        yield Ask(_LIMITED, (f"{PATIENCE}s", "0"))
        yield Ask("SELECT pg_advisory_xact_lock(?)", (MIGRATING,))
    if dialect is Dialect.MARIADB:
        # A little at a time: the connection itself gives up on an answer that takes as long as a statement may.
        for _ in range(PATIENCE // 5):
            if (yield Ask(f"SELECT GET_LOCK({_LOCK}, 5)"))[0][0] == 1:
                break
        else:
            raise StoreUnavailable(f"Somebody else has been migrating for more than {PATIENCE} s; try again.")
    return limits


def _installed(name: str, statements: Sequence[str], dialect: Dialect) -> SqlFlow[int]:
    """The version of the tables called `name`; 0 where one of them is not there, whatever the version says."""
    tables = [found[1] for text in statements if (found := _TABLE.match(text))]
    for table in tables:
        if not (yield Ask(_THERE[dialect], (table,)))[0][0]:
            return 0
    rows = yield Ask("SELECT value FROM umavez_meta WHERE name = ?", (name,))
    return int(rows[0][0]) if rows else 0


def _statements(package: str, dialect: Dialect) -> list[str]:
    text = files(package).joinpath(f"schema/{dialect.name.lower()}.sql").read_text("utf-8")
    return [part.strip() for part in re.sub(r"--[^\n]*", "", text).split(";") if part.strip()]
