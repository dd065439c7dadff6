-- umavez on MariaDB 10.6 or newer, version 2. Instants are BIGINT milliseconds since the epoch, so that no session's
-- time zone can shift them (the view below shows them as text, in UTC).
-- The collation is utf8mb4_nopad_bin: utf8mb4_bin would take 'a ' for 'a', in a stamp as in a search.
-- Columns of seed 003 keep their names; digest, scope, stamp, fence, attempt, lease_until, fingerprint,
-- outcome_kept, progress and evidence are the protocol's own.

CREATE TABLE IF NOT EXISTS idempotency_records (
    digest              BINARY(32)   NOT NULL,  -- SHA-256 of scope, operation and key: no collation can merge two keys
    scope               VARCHAR(255) NOT NULL,
    operation_name      VARCHAR(255) NOT NULL,
    idempotency_key     VARCHAR(255) NOT NULL,
    stamp               VARCHAR(255) NOT NULL,
    fence               BIGINT       NOT NULL,
    status              VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL
                        CHECK (status IN ('PENDING', 'SUCCESS', 'FAILED', 'UNKNOWN')),
    attempt             INT          NOT NULL,
    retry_count         INT          GENERATED ALWAYS AS (greatest(attempt - 1, 0)) VIRTUAL,
    created_at          BIGINT       NOT NULL,
    updated_at          BIGINT       NOT NULL,
    lease_until         BIGINT       NULL,
    expires_at          BIGINT       NULL,      -- NULL: runs or is unknown, never swept
    fingerprint         TEXT         NULL,
    process_instance_id VARCHAR(255) NULL,
    activity_id         VARCHAR(255) NULL,
    outcome_kept        BOOLEAN      NOT NULL,
    result_data         LONGTEXT     NULL,
    error_message       LONGTEXT     NULL,
    progress            LONGTEXT     NULL,
    evidence            LONGTEXT     NULL,
    origin              VARCHAR(255) NULL,      -- where the claim came from (docs/decisions/0019)
    UNIQUE INDEX idx_idempotency_key (digest),  -- NOT NULL and first of its kind: InnoDB clusters the table by it
    INDEX idx_key_text (idempotency_key),
    INDEX idx_process_instance (process_instance_id),
    INDEX idx_created_at (created_at),
    INDEX idx_expires_at (expires_at),
    INDEX idx_status (status, created_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;

-- What older tables lack. Online: others read and write meanwhile. A column is added without copying. Callers queue
-- behind whoever waits for the lock of a table, so it is waited for briefly, and asked for again (see schema.py).
ALTER TABLE idempotency_records WAIT 1 ADD COLUMN IF NOT EXISTS origin VARCHAR(255) NULL, ALGORITHM=INSTANT;
ALTER TABLE idempotency_records ADD INDEX IF NOT EXISTS idx_key_text (idempotency_key);
ALTER TABLE idempotency_records ADD INDEX IF NOT EXISTS idx_status (status, created_at);

-- One counter for every fence, so that no fence repeats after its record was swept.
-- On Galera (see schema.py) without a cache, which is refused there.
CREATE SEQUENCE IF NOT EXISTS umavez_fence START WITH 1 INCREMENT BY 1 CACHE 1000 ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS umavez_meta (
    name  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
) ENGINE=InnoDB;
INSERT INTO umavez_meta (name, value) VALUES ('schema', 2) ON DUPLICATE KEY UPDATE value = greatest(value, 2);

-- What happened to records beside the clean path, and the processes that hold them (docs/decisions/0016). A version of their
-- own: who knows nothing of them goes on as before.
CREATE TABLE IF NOT EXISTS umavez_events (
    seq     BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at      BIGINT       NOT NULL,
    digest  BINARY(32)   NOT NULL,
    kind    VARCHAR(32)  NOT NULL,
    attempt INT          NOT NULL,
    fence   BIGINT       NOT NULL,
    holder  VARCHAR(255) NOT NULL,  -- the owner in a stamp, and before its last hyphen a prefix of umavez_holders
    detail  TEXT         NULL,
    trace   VARCHAR(255) NULL,
    INDEX idx_umavez_events (digest, seq)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS umavez_holders (
    prefix     VARCHAR(255) NOT NULL PRIMARY KEY,
    host       VARCHAR(255) NOT NULL,
    pid        BIGINT       NOT NULL,
    app        VARCHAR(255) NOT NULL,
    version    VARCHAR(255) NOT NULL,
    started_at BIGINT       NOT NULL,
    seen_at    BIGINT       NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
INSERT INTO umavez_meta (name, value) VALUES ('events', 1) ON DUPLICATE KEY UPDATE value = greatest(value, 1);

-- How often what happened in each minute (kept for two days) and hour (for ninety): written by each process for itself, never by a
-- call (docs/decisions/0019). `at` is when it began, in milliseconds by the server's clock. b0 to b9 count by how long it took:
-- up to 5, 25, 100, 250, 500 ms, 1, 2.5, 10, 60 s, and longer. A version of its own, as events have.
CREATE TABLE IF NOT EXISTS umavez_minutes (
    span      BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    operation VARCHAR(255) NOT NULL,
    kind      VARCHAR(32) NOT NULL,
    process   VARCHAR(64) NOT NULL,  -- who counted; before the last hyphen a prefix of umavez_holders
    n         BIGINT NOT NULL,
    seconds   DOUBLE NOT NULL,
    b0        BIGINT NOT NULL,
    b1        BIGINT NOT NULL,
    b2        BIGINT NOT NULL,
    b3        BIGINT NOT NULL,
    b4        BIGINT NOT NULL,
    b5        BIGINT NOT NULL,
    b6        BIGINT NOT NULL,
    b7        BIGINT NOT NULL,
    b8        BIGINT NOT NULL,
    b9        BIGINT NOT NULL,
    PRIMARY KEY (span, at, operation, kind, process)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin ROW_FORMAT=DYNAMIC;
INSERT INTO umavez_meta (name, value) VALUES ('minutes', 1) ON DUPLICATE KEY UPDATE value = greatest(value, 1);

CREATE OR REPLACE SQL SECURITY INVOKER VIEW idempotency_records_readable AS
SELECT scope, operation_name, idempotency_key, status, retry_count, fence, process_instance_id, activity_id,
       date_add('1970-01-01 00:00:00.000', INTERVAL created_at * 1000 MICROSECOND) AS created_at,
       date_add('1970-01-01 00:00:00.000', INTERVAL updated_at * 1000 MICROSECOND) AS updated_at,
       date_add('1970-01-01 00:00:00.000', INTERVAL lease_until * 1000 MICROSECOND) AS lease_until,
       date_add('1970-01-01 00:00:00.000', INTERVAL expires_at * 1000 MICROSECOND) AS expires_at,
       result_data, error_message, evidence
  FROM idempotency_records;
