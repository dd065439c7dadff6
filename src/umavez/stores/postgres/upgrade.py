"""From version 1 to 2 while others read and write: expand, backfill, contract. The carrying out is in `_async`.

Both versions of umavez work on the table at every moment of it: no statement of either names what only one of them
has. It can be stopped anywhere and goes on where it stood when `migrate` runs again; the version is raised at its end.
"""

from __future__ import annotations

from umavez.errors import StoreUnavailable
from umavez.stores import MIGRATING
from umavez.stores.texts import statement

BATCH = 500
"""Records that get an id in one transaction: whoever wants one of them waits some milliseconds."""
SHARE = 1.0
"""Pause after each batch, in times of what it took: the server's other half is for its callers."""
BRIEF = 0.3
"""Seconds that a change of the table waits for its lock. Everybody else queues behind it meanwhile, and swaps give up
after 0.8 s; so it rather steps back and tries again."""
PATIENCE = 60.0
"""Seconds in which the table must have been free for a moment, or one more record have got its id."""

ALONE = f"SELECT pg_try_advisory_lock({MIGRATING + 1})"
"""Not the lock of migrations: who waits for that one is in a transaction, and an index that is built beside the callers
waits for every transaction."""
SESSION = f"SET statement_timeout = 0; SET lock_timeout = '{BRIEF}s'"

EXPAND = statement("postgres", "expand")
BACKFILL = statement("postgres", "backfill")
LEFT = "SELECT count(*) FROM idempotency_records WHERE id IS NULL"
ALL_HAVE_ONE = (
    "ALTER TABLE idempotency_records DROP CONSTRAINT IF EXISTS ck_id,"
    " ADD CONSTRAINT ck_id CHECK (id IS NOT NULL) NOT VALID"
)
BESIDE = (
    # They read the whole table, and hold nobody up. None can be in a transaction.
    "ALTER TABLE idempotency_records VALIDATE CONSTRAINT ck_id",
    "ALTER TABLE idempotency_records VALIDATE CONSTRAINT ck_lengths",
)
INDEXES = {
    "idempotency_records_pkey": "CREATE UNIQUE INDEX CONCURRENTLY idempotency_records_pkey ON idempotency_records (id)",
    "idx_idempotency_key": "CREATE INDEX CONCURRENTLY idx_idempotency_key ON idempotency_records"
    " USING hash (idempotency_key)",
}
VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
"""False for what an interrupted attempt left behind; no row where there is nothing."""


def unfinished(name: str) -> str:
    """Removes what an interrupted attempt left of an index."""
    return f"DROP INDEX CONCURRENTLY IF EXISTS {name}"


LOCKED = "LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE"
NEXT_ID = "SELECT nextval('umavez_first_ids')"


def contract(first: int) -> str:
    """The last part, with nothing left to read: the table is as `schema.sql` would have made it."""
    return f"""
        ALTER TABLE idempotency_records
            ALTER COLUMN id SET NOT NULL,
            ALTER COLUMN id DROP DEFAULT;
        ALTER TABLE idempotency_records
            ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (START WITH {first}),
            ADD CONSTRAINT idempotency_records_pkey PRIMARY KEY USING INDEX idempotency_records_pkey,
            DROP CONSTRAINT ck_id;
        DROP SEQUENCE umavez_first_ids;
        UPDATE umavez_meta SET value = 2 WHERE name = 'schema'
    """


def held_up(what: str) -> StoreUnavailable:
    """Somebody else's transaction does not end."""
    return StoreUnavailable(
        f"The tables are not upgraded yet: {what} was held by other transactions for {PATIENCE:g} s;"
        " end the one that stays open (see pg_stat_activity) and run umavez migrate again. Callers go on meanwhile."
    )
