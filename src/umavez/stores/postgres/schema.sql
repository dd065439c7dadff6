-- umavez on PostgreSQL, version 2 (upgrade.py brings version 1 here). Runs inside one transaction that holds an
-- advisory lock, so that processes that start together do not collide. Columns of seed 003 keep their names; digest,
-- scope, stamp, fence, attempt, lease_until, fingerprint, outcome_kept, progress and evidence are the protocol's own.

CREATE TABLE IF NOT EXISTS idempotency_records (
    id                  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest              bytea       NOT NULL CHECK (octet_length(digest) = 32),  -- SHA-256 of scope, operation and key
    scope               text        NOT NULL,
    operation_name      text        NOT NULL,
    idempotency_key     text        NOT NULL,
    stamp               text        NOT NULL,
    fence               bigint      NOT NULL,
    status              text        NOT NULL CHECK (status IN ('PENDING', 'SUCCESS', 'FAILED', 'UNKNOWN')),
    attempt             integer     NOT NULL,
    retry_count         integer     GENERATED ALWAYS AS (greatest(attempt - 1, 0)) STORED,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL,
    lease_until         timestamptz,
    expires_at          timestamptz,                                             -- NULL: runs or is unknown, never swept
    fingerprint         text,
    process_instance_id text,
    activity_id         text,
    outcome_kept        boolean     NOT NULL,
    result_data         text,
    error_message       text,
    progress            text,
    evidence            text,
    origin              text,                                                    -- where the claim came from (decision 0019)
    CONSTRAINT ck_lengths CHECK (
        char_length(scope) <= 255 AND char_length(operation_name) <= 255 AND char_length(idempotency_key) <= 255
        AND char_length(process_instance_id) <= 255 AND char_length(activity_id) <= 255
    )
) WITH (
    -- Room on the page for the settled version of a row, and for renewals, which then touch no index (HOT).
    fillfactor = 80,
    -- Every record is written at least twice and deleted once: at the default of a fifth of the table, five million
    -- records would collect a million dead rows before the first cleaning.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05
);

-- Where claims came from, in tables that were made before (docs/decisions/0019): nothing is read or copied, and who knows nothing of
-- it goes on as before. First of all that locks the table, for its lock is the strongest.
ALTER TABLE idempotency_records ADD COLUMN IF NOT EXISTS origin text;

CREATE UNIQUE INDEX IF NOT EXISTS idx_digest ON idempotency_records (digest);
-- Not unique: one text may be a key of several scopes and operations (docs/decisions/0014). A hash, because nobody asks
-- for more than equality, and a b-tree would write the text to the log once for the claim and once for the outcome.
CREATE INDEX IF NOT EXISTS idx_idempotency_key ON idempotency_records USING hash (idempotency_key);
CREATE INDEX IF NOT EXISTS idx_process_instance ON idempotency_records (process_instance_id)
    WHERE process_instance_id IS NOT NULL;
-- A b-tree, not BRIN: rows fill the gaps that sweeping leaves, so page ranges would soon span all times, and `find`
-- returns the oldest first, which only a b-tree gives without sorting the table. New entries always go to its end.
CREATE INDEX IF NOT EXISTS idx_created_at ON idempotency_records (created_at);
-- What a reconciler looks for, whatever the table's size: outcomes that are unknown, and leases that are over.
CREATE INDEX IF NOT EXISTS idx_unknown ON idempotency_records (created_at) WHERE status = 'UNKNOWN';
CREATE INDEX IF NOT EXISTS idx_lease_until ON idempotency_records (lease_until) WHERE lease_until IS NOT NULL;

CREATE INDEX IF NOT EXISTS idx_expires_at ON idempotency_records (expires_at) WHERE expires_at IS NOT NULL;

-- One counter for all fences, so that no fence repeats after its record was swept. CACHE 1: with more, a session
-- could hand out an old number after another session gave a newer one.
CREATE SEQUENCE IF NOT EXISTS umavez_fence AS bigint CACHE 1;

CREATE TABLE IF NOT EXISTS umavez_meta (
    name  text   PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO umavez_meta VALUES ('schema', 2) ON CONFLICT (name) DO UPDATE SET value = 2;

-- What happened to records beside the clean path, and the processes that hold them (docs/decisions/0016). A version of their
-- own: who knows nothing of them goes on as before.
CREATE TABLE IF NOT EXISTS umavez_events (
    seq     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL,
    digest  bytea       NOT NULL,
    kind    text        NOT NULL,
    attempt integer     NOT NULL,
    fence   bigint      NOT NULL,
    holder  text        NOT NULL,  -- the stamp's owner; what stands before its last hyphen is a prefix of umavez_holders
    detail  text,
    trace   text
);
CREATE INDEX IF NOT EXISTS idx_umavez_events ON umavez_events (digest, seq);

CREATE TABLE IF NOT EXISTS umavez_holders (
    prefix     text        PRIMARY KEY,
    host       text        NOT NULL,
    pid        bigint      NOT NULL,
    app        text        NOT NULL,
    version    text        NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL
);
INSERT INTO umavez_meta VALUES ('events', 1) ON CONFLICT (name) DO NOTHING;

-- How often what happened in each minute (kept for two days) and hour (for ninety): written by each process for itself, never by a
-- call (docs/decisions/0019). `at` is when it began, in milliseconds by the server's clock. b0 to b9 count by how long it took:
-- up to 5, 25, 100, 250, 500 ms, 1, 2.5, 10, 60 s, and longer. A version of its own, as events have.
CREATE TABLE IF NOT EXISTS umavez_minutes (
    span      bigint NOT NULL,
    at        bigint NOT NULL,
    operation text NOT NULL,
    kind      text NOT NULL,
    process   text NOT NULL,  -- who counted; before the last hyphen a prefix of umavez_holders
    n         bigint NOT NULL,
    seconds   double precision NOT NULL,
    b0        bigint NOT NULL,
    b1        bigint NOT NULL,
    b2        bigint NOT NULL,
    b3        bigint NOT NULL,
    b4        bigint NOT NULL,
    b5        bigint NOT NULL,
    b6        bigint NOT NULL,
    b7        bigint NOT NULL,
    b8        bigint NOT NULL,
    b9        bigint NOT NULL,
    PRIMARY KEY (span, at, operation, kind, process)
) WITH (
    -- A process writes its row of a minute six times and that of an hour 360 times: room for it, without touching an index.
    fillfactor = 70
);
INSERT INTO umavez_meta VALUES ('minutes', 1) ON CONFLICT (name) DO NOTHING;
