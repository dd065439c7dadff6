-- umavez on SQLite, version 2 (schema.py brings version 1 here). Instants are milliseconds since the epoch (the view
-- below shows them as text). Columns of seed 003 keep their names; digest, scope, stamp, fence, attempt, lease_until,
-- fingerprint, outcome_kept, progress and evidence are the protocol's own. SQLite itself cuts no text at its length.

CREATE TABLE IF NOT EXISTS idempotency_records (
    id                  INTEGER PRIMARY KEY,  -- the fence of the first claim: rising, and never used again
    digest              BLOB    NOT NULL CHECK (length(digest) = 32),  -- SHA-256 of scope, operation and key
    scope               VARCHAR(255) NOT NULL CHECK (length(scope) <= 255),
    operation_name      VARCHAR(255) NOT NULL CHECK (length(operation_name) <= 255),
    idempotency_key     VARCHAR(255) NOT NULL CHECK (length(idempotency_key) <= 255),
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
    process_instance_id VARCHAR(255) CHECK (length(process_instance_id) <= 255),
    activity_id         VARCHAR(255) CHECK (length(activity_id) <= 255),
    outcome_kept        INTEGER NOT NULL,
    result_data         TEXT,
    error_message       TEXT,
    progress            TEXT,
    evidence            TEXT,
    origin              TEXT                                           -- where the claim came from (docs/decisions/0019)
);

CREATE UNIQUE INDEX IF NOT EXISTS idx_digest ON idempotency_records (digest);
-- Not unique: one text may be a key of several scopes and operations (docs/decisions/0014).
CREATE INDEX IF NOT EXISTS idx_idempotency_key ON idempotency_records (idempotency_key);
CREATE INDEX IF NOT EXISTS idx_process_instance ON idempotency_records (process_instance_id)
    WHERE process_instance_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_created_at ON idempotency_records (created_at);
CREATE INDEX IF NOT EXISTS idx_expires_at ON idempotency_records (expires_at) WHERE expires_at IS NOT NULL;
-- What is looked for again and again and is hardly ever there: unknown outcomes, and leases that are over.
CREATE INDEX IF NOT EXISTS idx_unknown ON idempotency_records (created_at) WHERE status = 'UNKNOWN';
CREATE INDEX IF NOT EXISTS idx_lease_until ON idempotency_records (lease_until) WHERE lease_until IS NOT NULL;

-- What outlives the records: the schema's version, and the highest fence of any record that was swept.
CREATE TABLE IF NOT EXISTS umavez_meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT OR IGNORE INTO umavez_meta VALUES ('schema', 2), ('fence', 0), ('events', 1);

-- What happened to records beside the clean path, and the processes that hold them (docs/decisions/0016). A version of their
-- own: who knows nothing of them goes on as before.
CREATE TABLE IF NOT EXISTS umavez_events (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    digest  BLOB    NOT NULL,
    kind    TEXT    NOT NULL,
    attempt INTEGER NOT NULL,
    fence   INTEGER NOT NULL,
    holder  TEXT    NOT NULL,  -- the owner in a stamp, and before its last hyphen a prefix of umavez_holders
    detail  TEXT,
    trace   TEXT
);
CREATE INDEX IF NOT EXISTS idx_umavez_events ON umavez_events (digest, seq);

CREATE TABLE IF NOT EXISTS umavez_holders (
    prefix     TEXT    PRIMARY KEY,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    app        TEXT    NOT NULL,
    version    TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
) WITHOUT ROWID;

-- How often what happened in each minute (kept for two days) and hour (for ninety): written by each process for itself, never by a
-- call (docs/decisions/0019). `at` is when it began, in milliseconds by the host's clock. b0 to b9 count by how long it took:
-- up to 5, 25, 100, 250, 500 ms, 1, 2.5, 10, 60 s, and longer. A version of its own, as events have.
CREATE TABLE IF NOT EXISTS umavez_minutes (
    span      INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    operation TEXT NOT NULL,
    kind      TEXT NOT NULL,
    process   TEXT NOT NULL,  -- who counted; before the last hyphen a prefix of umavez_holders
    n         INTEGER NOT NULL,
    seconds   REAL NOT NULL,
    b0        INTEGER NOT NULL,
    b1        INTEGER NOT NULL,
    b2        INTEGER NOT NULL,
    b3        INTEGER NOT NULL,
    b4        INTEGER NOT NULL,
    b5        INTEGER NOT NULL,
    b6        INTEGER NOT NULL,
    b7        INTEGER NOT NULL,
    b8        INTEGER NOT NULL,
    b9        INTEGER NOT NULL,
    PRIMARY KEY (span, at, operation, kind, process)
) WITHOUT ROWID;
INSERT OR IGNORE INTO umavez_meta VALUES ('minutes', 1);

CREATE VIEW IF NOT EXISTS idempotency_records_readable AS
SELECT id, scope, operation_name, idempotency_key, status, retry_count, fence, process_instance_id, activity_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', updated_at / 1000.0, 'unixepoch') AS updated_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', lease_until / 1000.0, 'unixepoch') AS lease_until,
       strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000.0, 'unixepoch') AS expires_at,
       result_data, error_message, evidence
  FROM idempotency_records;
