"""Causes: the key whose attempt wrote a message, in outboxes that have a column for it.

The column came after the table. Its version is its own, so that older releases go on migrating and writing beside it.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from umavez.engine.current import CURRENT
from umavez.messaging.tables.version import NAME, PACKAGE, VERSION
from umavez.sql.connection import AsyncSql, Dialect, Sql
from umavez.sql.flow import Ask, SqlFlow, Write
from umavez.sql.migration import migration

THERE = {
    Dialect.POSTGRES: "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('umavez_outbox')"
    " AND attname = 'cause' AND NOT attisdropped",
    Dialect.SQLITE: "SELECT count(*) FROM pragma_table_info('umavez_outbox') WHERE name = 'cause'",
    Dialect.MARIADB: "SELECT count(*) FROM information_schema.columns WHERE table_schema = database()"
    " AND table_name = 'umavez_outbox' AND column_name = 'cause'",
}
_ADDED = {
    # Callers queue behind whoever waits for a table's lock: so it steps back after 0.3 s, and tries again for a minute.
    Dialect.POSTGRES: (
        """
        DO $$
        DECLARE
            callers text := current_setting('lock_timeout');
        BEGIN
            FOR tried IN 1..100 LOOP
                BEGIN
                    PERFORM set_config('lock_timeout', '300ms', true);
                    ALTER TABLE umavez_outbox ADD COLUMN IF NOT EXISTS cause text;
                    EXIT;
                EXCEPTION WHEN lock_not_available THEN
                    IF tried = 100 THEN
                        RAISE;
                    END IF;
                    PERFORM pg_sleep(0.3);
                END;
            END LOOP;
            PERFORM set_config('lock_timeout', callers, true);
        END
        $$
        """,
        "CREATE INDEX IF NOT EXISTS umavez_outbox_cause ON umavez_outbox (cause, seq) WHERE cause IS NOT NULL",
    ),
    Dialect.SQLITE: (
        "ALTER TABLE umavez_outbox ADD COLUMN cause TEXT",
        "CREATE INDEX IF NOT EXISTS umavez_outbox_cause ON umavez_outbox (cause, seq) WHERE cause IS NOT NULL",
    ),
    Dialect.MARIADB: (
        "ALTER TABLE umavez_outbox WAIT 1 ADD COLUMN IF NOT EXISTS cause CHAR(64) CHARACTER SET ascii NULL",
        "ALTER TABLE umavez_outbox WAIT 1 ADD INDEX IF NOT EXISTS umavez_outbox_cause (cause, seq)",
    ),
}
_KNOWN: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Whether the outbox of a connection has the column; asked once for each."""


def making(dialect: Dialect) -> SqlFlow[str]:
    """Create or upgrade the tables of messaging; see `migration`."""
    told = yield from migration(PACKAGE, NAME, VERSION, dialect)
    if not (yield Ask(THERE[dialect]))[0][0]:
        for statement in _ADDED[dialect]:
            yield Write(statement)
    return told


def cause_here(sql: Sql | AsyncSql) -> SqlFlow[str | None]:
    """The digest of the key whose attempt is running here, in hexadecimal digits, where the outbox can keep it."""
    attempt = CURRENT.get()
    if attempt is None:
        return None
    if sql.dialect is Dialect.SQLITE:
        known = (yield Ask(THERE[sql.dialect]))[0][0]  # its connections cannot be remembered, and it is near
    elif sql.connection not in _KNOWN:
        known = _KNOWN[sql.connection] = bool((yield Ask(THERE[sql.dialect]))[0][0])
    else:
        known = _KNOWN[sql.connection]
    return str(attempt.key.digest.hex()) if known else None
