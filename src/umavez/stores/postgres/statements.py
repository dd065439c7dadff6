"""The statements of the PostgreSQL store, all of them text that never changes: the folder `sql`, one file each.

Each swap answers in one round trip: with the fence when it was done, with the record that stands there when it was
not, and with no row at all when a rival committed between the statement's snapshot and its write (it is then sent
again). A swap that finds its key taken writes nothing and takes no number from the sequence.

A row of an answer to a swap is the time, the fence (NULL where it was not done) and the columns of `rows.READ`; the
draft among the parameters has the order of `rows.WRITE`. A batch has two columns in the place of the fence, and its
first row is all that was written. The plain ones do what nearly every swap needs, and leave the others to those beside
them (docs/decisions/0025).
"""

from __future__ import annotations

from umavez.stores import MIGRATING as LOCK
from umavez.stores import rows
from umavez.stores.texts import statement

VERSION = 2
"""The schema this module speaks."""


INSERT = statement("postgres", "insert")
UPDATE = statement("postgres", "update")
UPDATE_PLAIN = statement("postgres", "update_plain")
JOINED_INSERT = statement("postgres", "joined_insert")
JOINED_UPDATE = statement("postgres", "joined_update")
BATCH = statement("postgres", "batch")
BATCH_PLAIN = statement("postgres", "batch_plain")
SEEN = statement("postgres", "seen")
TIME = statement("postgres", "time")
FOUND = statement("postgres", "found")
SWEEP = statement("postgres", "sweep")

INSERT_TELLING = statement("postgres", "insert_telling")
JOINED_INSERT_TELLING = statement("postgres", "joined_insert_telling")
UPDATE_TELLING = statement("postgres", "update_telling")
JOINED_UPDATE_TELLING = statement("postgres", "joined_update_telling")
BATCH_TELLING = statement("postgres", "batch_telling")
SWEEP_TELLING = statement("postgres", "sweep_telling")
HISTORY = statement("postgres", "history")
REMARK = statement("postgres", "remark")
ANNOUNCE = statement("postgres", "announce")
PROCESSES = statement("postgres", "processes")
ORIGIN = statement("postgres", "origin")
TALLY = statement("postgres", "tally")
TALLIED = statement("postgres", "tallied")
MINDS = statement("postgres", "minds")
KEEPS = statement("postgres", "keeps")
"""Events and origins: a swap that has one says so in a statement of its own, so that the others cost what they did."""

MARKS = rows.Marks("%s", "to_timestamp(%s::bigint / 1000.0)", "%s::bytea")
"""The placeholders of `find`; a column's time is made out of milliseconds."""

PATIENCE = "SET LOCAL lock_timeout = '300ms'; SET LOCAL statement_timeout = 0"
"""How long a migration waits at once for another, or for a transaction that is in its way: callers queue behind it, so
it steps back and tries again. Its own work may take its time."""

MIGRATING = f"SELECT pg_advisory_xact_lock({LOCK})"
META = "SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'umavez_meta' AND pg_table_is_visible(oid))"
"""Not to_regclass: the session would remember a no, and repeat it after it has waited for whoever makes the tables."""
WHOLE = (
    "SELECT to_regclass('idempotency_records') IS NOT NULL AND to_regclass('umavez_fence') IS NOT NULL"
    " AND to_regclass('umavez_events') IS NOT NULL AND to_regclass('umavez_holders') IS NOT NULL"
    " AND to_regclass('umavez_minutes') IS NOT NULL"
    " AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('idempotency_records') AND attname = 'origin'"
    " AND NOT attisdropped)"
)
"""Whether what the version speaks of is there: somebody may have dropped it."""
FOREIGN = (
    "SELECT EXISTS (SELECT FROM pg_class found WHERE relname = 'idempotency_records'"
    " AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
    " AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = found.oid AND attname = 'digest' AND NOT attisdropped))"
)
"""Whether a table of somebody else's stands where ours would be made. One in another schema of the path does not."""
INSTALLED = "SELECT value FROM umavez_meta WHERE name = 'schema'"
