-- umavez on SQLite, version 1. Instants are milliseconds since the epoch (the view below shows them as text).
-- Columns of seed 003 keep their names; digest, scope, stamp, fence, attempt, lease_until, fingerprint,
-- outcome_kept, progress and evidence are the protocol's own.

CREATE TABLE IF NOT EXISTS idempotency_records (
    digest              BLOB    NOT NULL CHECK (length(digest) = 32),  -- SHA-256 of scope, operation and key
    scope               TEXT    NOT NULL,
    operation_name      TEXT    NOT NULL,
    idempotency_key     TEXT    NOT NULL,
    stamp               TEXT    NOT NULL,
    fence               INTEGER NOT NULL,
    status              TEXT    NOT NULL CHECK (status IN ('PENDING', 'SUCCESS', 'FAILED', 'UNKNOWN')),
    attempt             INTEGER NOT NULL,
    retry_count         INTEGER GENERATED ALWAYS AS (max(attempt - 1, 0)) VIRTUAL,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    lease_until         INTEGER,
    expires_at          INTEGER,                                       -- NULL: runs or is unknown, never swept
    fingerprint         TEXT,
    process_instance_id TEXT,
    activity_id         TEXT,
    outcome_kept        INTEGER NOT NULL,
    result_data         TEXT,
    error_message       TEXT,
    progress            TEXT,
    evidence            TEXT
);

CREATE UNIQUE INDEX IF NOT EXISTS idx_idempotency_key ON idempotency_records (digest);
CREATE INDEX IF NOT EXISTS idx_process_instance ON idempotency_records (process_instance_id)
    WHERE process_instance_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_created_at ON idempotency_records (created_at);
CREATE INDEX IF NOT EXISTS idx_expires_at ON idempotency_records (expires_at) WHERE expires_at IS NOT NULL;

-- What outlives the records: the schema's version, and the highest fence of any record that was swept.
CREATE TABLE IF NOT EXISTS umavez_meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT OR IGNORE INTO umavez_meta VALUES ('schema', 1), ('fence', 0);

CREATE VIEW IF NOT EXISTS idempotency_records_readable AS
SELECT scope, operation_name, idempotency_key, status, retry_count, fence, process_instance_id, activity_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', updated_at / 1000.0, 'unixepoch') AS updated_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', lease_until / 1000.0, 'unixepoch') AS lease_until,
       strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000.0, 'unixepoch') AS expires_at,
       result_data, error_message, evidence
  FROM idempotency_records;
