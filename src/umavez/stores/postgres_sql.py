"""The statements of the PostgreSQL store, all of them text that never changes.

Each swap answers in one round trip: with the fence when it was done, with the record that stands there when it was
not, and with no row at all when a rival committed between the statement's snapshot and its write (it is then sent
again). A swap that finds its key taken writes nothing and takes no number from the sequence.

Parameters of the single statements: $1 offset, $2 digest, then for an insert $3 scope, $4 operation, $5 key, for an
update $3 expected stamp, $4 claims, $5 fresh, and from $6 on the values of `rows.WRITE`; $19 is the advisory lock.
"""

from __future__ import annotations

from umavez.stores import rows

VERSION = 1
"""The schema this module speaks."""

_MILLIS = "(date_part('epoch', {}) * 1000)::bigint"
_TIMES = {"created_at", "updated_at", "lease_until", "expires_at"}


def _read(alias: str) -> str:
    columns = (f"{alias}.{name.strip()}" for name in rows.READ.split(","))
    return ", ".join(_MILLIS.format(column) if column.partition(".")[2] in _TIMES else column for column in columns)


_NOW = (
    "now AS MATERIALIZED (SELECT date_trunc('milliseconds', clock_timestamp())"
    " + $1::bigint * interval '1 millisecond' AS at)"
)
_AT = _MILLIS.format("now.at")
# The columns after `fence` in the answer to a swap that was done: absent, and typed so that UNION agrees.
_NOTHING = (
    "NULL::text, NULL::bigint, NULL::text, NULL::integer, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,"
    " NULL::text, NULL::text, NULL::text, NULL::boolean, NULL::text, NULL::text, NULL::text, NULL::text"
)
_VALUES = (
    "$6::text, $7::text, $8::bigint::integer, now.at + $9::bigint * interval '1 millisecond',"
    " now.at + $10::bigint * interval '1 millisecond', $11::text, $12::text, $13::text, $14::boolean, $15::text,"
    " $16::text, $17::text, $18::text"
)
_INSERTED = f"INSERT INTO idempotency_records ({rows.KEY}, fence, created_at, updated_at, {rows.WRITE})"


def _insert(gate: str = "", opened: str = "", source: str = "now") -> str:
    return (
        f"WITH {_NOW}, standing AS MATERIALIZED (SELECT {_read('c')} FROM idempotency_records c"
        f" WHERE c.digest = $2::bytea),{gate} written AS ({_INSERTED}"
        f" SELECT $2::bytea, $3::text, $4::text, $5::text, nextval('umavez_fence'), now.at, now.at, {_VALUES}"
        f" FROM {source} WHERE {opened}NOT EXISTS (SELECT FROM standing)"
        " ON CONFLICT (digest) DO NOTHING RETURNING fence)"
        f" SELECT {_AT}, written.fence, {_NOTHING} FROM written, now"
        f" UNION ALL SELECT {_AT}, NULL, standing.* FROM now, standing"
    )


def _update(gate: str = "", opened: str = "", source: str = "now") -> str:
    return (
        f"WITH {_NOW},{gate} written AS (UPDATE idempotency_records r"
        " SET fence = CASE WHEN $4::boolean THEN nextval('umavez_fence') ELSE r.fence END,"
        " created_at = CASE WHEN $5::boolean THEN now.at ELSE r.created_at END, updated_at = now.at,"
        f" ({rows.WRITE}) = ROW({_VALUES})"
        f" FROM {source} WHERE {opened}r.digest = $2::bytea AND r.stamp = $3::text RETURNING r.fence)"
        f" SELECT {_AT}, written.fence, {_NOTHING} FROM written, now"
        f" UNION ALL SELECT {_AT}, NULL, {_read('c')}"
        " FROM now LEFT JOIN idempotency_records c ON c.digest = $2::bytea"
        " WHERE c.stamp IS DISTINCT FROM $3::text"
    )


INSERT = _insert()
UPDATE = _update()

# In the caller's transaction a rival's uncommitted claim must neither block nor abort it, so the claim first tries
# an advisory lock that lives as long as the transaction. CASE keeps the lock from being taken for a mere replay.
JOINED_INSERT = _insert(
    " gate AS MATERIALIZED (SELECT CASE WHEN EXISTS (SELECT FROM standing)"
    " THEN false ELSE pg_try_advisory_xact_lock($19::bigint) END AS opened),",
    "gate.opened AND ",
    "now, gate",
)
JOINED_UPDATE = _update(
    " gate AS MATERIALIZED (SELECT CASE WHEN $4::boolean THEN pg_try_advisory_xact_lock($19::bigint)"
    " ELSE true END AS opened),",
    "gate.opened AND ",
    "now, gate",
)

_ARRAYS = (
    ("digest", "bytea"),
    ("expected", "text"),
    ("scope", "text"),
    ("operation_name", "text"),
    ("idempotency_key", "text"),
    ("claims", "boolean"),
    ("fresh", "boolean"),
    ("stamp", "text"),
    ("status", "text"),
    ("attempt", "integer"),
    ("lease", "bigint"),
    ("keep", "bigint"),
    ("fingerprint", "text"),
    ("process_instance_id", "text"),
    ("activity_id", "text"),
    ("outcome_kept", "boolean"),
    ("result_data", "text"),
    ("error_message", "text"),
    ("progress", "text"),
    ("evidence", "text"),
)
_ROW = (
    "i.stamp, i.status, i.attempt, now.at + i.lease * interval '1 millisecond',"
    " now.at + i.keep * interval '1 millisecond', i.fingerprint, i.process_instance_id, i.activity_id,"
    " coalesce(i.outcome_kept, false), i.result_data, i.error_message, i.progress, i.evidence"
)
# Rows come sorted by digest and are met in that order by nested loops, so two batches lock in the same order.
BATCH = (
    f"WITH {_NOW}, incoming AS MATERIALIZED (SELECT * FROM unnest("
    + ", ".join(f"${number}::{kind}[]" for number, (_, kind) in enumerate(_ARRAYS, 2))
    + f") AS u ({', '.join(name for name, _ in _ARRAYS)})),"
    # Every key is looked up once. NOT IN is a hashed subplan, which the settings of our connections do not forbid.
    f" standing AS MATERIALIZED (SELECT {_read('c')}, i.digest AS asked FROM incoming i"
    " LEFT JOIN idempotency_records c ON c.digest = i.digest WHERE c.stamp IS DISTINCT FROM i.expected),"
    f" inserted AS ({_INSERTED}"
    " SELECT i.digest, i.scope, i.operation_name, i.idempotency_key, nextval('umavez_fence'), now.at, now.at,"
    f" {_ROW} FROM incoming i, now WHERE i.expected IS NULL"
    " AND i.digest NOT IN (SELECT asked FROM standing)"
    " ON CONFLICT (digest) DO NOTHING RETURNING digest, fence),"
    " updated AS (UPDATE idempotency_records r"
    " SET fence = CASE WHEN i.claims THEN nextval('umavez_fence') ELSE r.fence END,"
    " created_at = CASE WHEN i.fresh THEN now.at ELSE r.created_at END, updated_at = now.at,"
    f" ({rows.WRITE}) = ROW({_ROW})"
    " FROM incoming i, now WHERE i.expected IS NOT NULL AND r.digest = i.digest AND r.stamp = i.expected"
    " RETURNING r.digest, r.fence)"
    f" SELECT {_AT}, inserted.fence, {_NOTHING}, inserted.digest FROM inserted, now"
    f" UNION ALL SELECT {_AT}, updated.fence, {_NOTHING}, updated.digest FROM updated, now"
    f" UNION ALL SELECT {_AT}, NULL, standing.* FROM now, standing"
)

SEEN = f"WITH {_NOW} SELECT {_AT}, {_read('c')} FROM now LEFT JOIN idempotency_records c ON c.digest = $2::bytea"

TIME = f"WITH {_NOW} SELECT {_AT} FROM now"

FOUND = f"SELECT c.scope, c.operation_name, c.idempotency_key, {_read('c')} FROM idempotency_records c"
"""`find` adds the conditions of its query."""

INSTANT = "to_timestamp(%s::bigint / 1000.0)"
"""A column's time out of milliseconds, around the placeholder of `find`."""

# The edge is a scalar subquery, so that the index on expires_at is walked from its start and left at the limit: as a
# join it would be sorted whole for every batch.
SWEEP = (
    f"WITH {_NOW}, dead AS MATERIALIZED (SELECT r.ctid AS place FROM idempotency_records r"
    " WHERE r.expires_at <= (SELECT now.at - $2::bigint * interval '1 millisecond' FROM now)"
    " ORDER BY r.expires_at LIMIT $3::bigint FOR UPDATE OF r SKIP LOCKED),"
    " gone AS (DELETE FROM idempotency_records WHERE ctid = ANY (ARRAY(SELECT place FROM dead)) RETURNING 1)"
    " SELECT count(*) FROM gone"
)

MIGRATING = "SELECT pg_advisory_xact_lock(hashtext('umavez migrate'))"
META = "SELECT to_regclass('umavez_meta') IS NOT NULL"
INSTALLED = "SELECT value FROM umavez_meta WHERE name = 'schema'"
