"""The schema's statements, and what its version means."""

from __future__ import annotations

import re
from importlib.resources import files

from umavez.errors import TABLE_FOREIGN, SchemaOutdated, StoreUnavailable
from umavez.stores.mariadb.statements import Rows, Statement

NEWEST = 2
STEP_BACK = 0.3
"""Seconds for which a migration leaves a table to its callers, after it has waited for the table's lock in vain."""
PATIENCE = 60.0
"""Seconds in which the table must have been free for a moment."""
BEGIN = Statement("START TRANSACTION")
COMMIT = Statement("COMMIT")
VERSION = Statement("SELECT value FROM umavez_meta WHERE name = 'schema'")
PRESENT = Statement(
    "SELECT count(*) FROM information_schema.tables WHERE table_schema = database() AND table_name = 'umavez_meta'"
)
FOREIGN = Statement(
    "SELECT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = database()"
    " AND table_name = 'idempotency_records') AND NOT EXISTS (SELECT 1 FROM information_schema.columns"
    " WHERE table_schema = database() AND table_name = 'idempotency_records' AND column_name = 'digest')"
)
"""Whether a table of somebody else's stands where ours would be made: asked first, as each statement commits."""
WHOLE = Statement(
    "SELECT count(*) = 6 FROM information_schema.tables WHERE table_schema = database()"
    " AND table_name IN ('umavez_meta', 'idempotency_records', 'umavez_fence', 'umavez_events', 'umavez_holders',"
    " 'umavez_minutes')"
    " AND EXISTS (SELECT 1 FROM information_schema.statistics WHERE table_schema = database()"
    " AND table_name = 'idempotency_records' AND index_name = 'idx_status')"
    " AND EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = database()"
    " AND table_name = 'idempotency_records' AND column_name = 'origin')"
)
"""Whether what the version speaks of is there: somebody may have dropped it, or an index came later."""


def _statements() -> list[Statement]:
    text = files("umavez.stores.mariadb").joinpath("schema.sql").read_text("utf-8")
    bare = re.sub(r"--[^\n]*", "", text)
    return [Statement(part.strip().replace("%", "%%")) for part in bare.split(";") if part.strip()]


SCHEMA = _statements()
GALERA = Statement(
    "SELECT count(*) FROM information_schema.global_variables"
    " WHERE variable_name = 'WSREP_ON' AND variable_value = 'ON'"
)
"""Whether several servers replicate to each other; not every build knows @@wsrep_on."""
_CACHE = "CACHE 1000"


def schema(*, galera: bool) -> list[Statement]:
    """The statements that make the tables. Galera takes no sequence that caches numbers in steps of one."""
    if not galera:
        return SCHEMA
    return [statement._replace(text=statement.text.replace(_CACHE, "NOCACHE")) for statement in SCHEMA]


def held_up() -> StoreUnavailable:
    """Somebody else's transaction does not end."""
    return StoreUnavailable(
        f"The tables are not upgraded yet: one was held by other transactions for {PATIENCE:g} s;"
        " end the one that stays open (see SHOW PROCESSLIST) and run umavez migrate again. Callers go on meanwhile."
    )


def checked(results: list[Rows]) -> int:
    """The version in the answer to VERSION; 0 where there is none. Raises SchemaOutdated for a later umavez's."""
    version = int(results[0][0][0]) if results[0] else 0
    if version > NEWEST:
        raise SchemaOutdated(f"The tables have version {version} and this umavez knows {NEWEST}; upgrade umavez.")
    return version


def refuse_foreign(results: list[Rows]) -> None:
    """Raise SchemaOutdated where FOREIGN was answered with yes."""
    if results[0][0][0]:
        raise SchemaOutdated(TABLE_FOREIGN)


def told(before: int, after: int, where: str, *, whole: bool = True) -> str:
    """One sentence on what migrate() did; `whole`: nothing was missing."""
    if before == after and whole:
        return f"The tables in MariaDB at {where} were already at version {after}."
    return f"The tables in MariaDB at {where} are now at version {after}."
