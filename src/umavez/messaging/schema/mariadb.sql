-- Messages on MariaDB 10.6 or newer, version 1. Instants are milliseconds since the epoch, by the server's clock.
-- due_at: when a row may be claimed: at once, after a pause, or when the lease of whoever claimed it lapses.
-- seq says in which order the messages of one aggregate were written; nobody reads "everything above the last seq",
-- because a transaction that commits late would be skipped for ever.

CREATE TABLE IF NOT EXISTS umavez_outbox (
    seq        BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id         VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic      VARCHAR(255) NOT NULL,
    body       LONGTEXT     NOT NULL,
    headers    LONGTEXT     NULL,
    aggregate  VARCHAR(255) NULL,
    state      VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL
               CHECK (state IN ('WAITING', 'DONE', 'DEAD', 'DISCARDED')),
    attempts   INT          NOT NULL,
    created_at BIGINT       NOT NULL,
    due_at     BIGINT       NOT NULL,
    token      VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NULL,
    error      LONGTEXT     NULL,
    done_at    BIGINT       NULL,
    UNIQUE INDEX umavez_outbox_id (id),
    INDEX umavez_outbox_due (state, due_at, seq),
    INDEX umavez_outbox_aggregate (aggregate, state, seq),
    INDEX umavez_outbox_done (state, done_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS umavez_subscriptions (
    topic      VARCHAR(255) NOT NULL,
    subscriber VARCHAR(255) NOT NULL,
    PRIMARY KEY (topic, subscriber)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS umavez_deliveries (
    seq        BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    subscriber VARCHAR(255) NOT NULL,
    id         VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic      VARCHAR(255) NOT NULL,
    body       LONGTEXT     NOT NULL,
    headers    LONGTEXT     NULL,
    aggregate  VARCHAR(255) NULL,
    state      VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL
               CHECK (state IN ('WAITING', 'DONE', 'DEAD', 'DISCARDED')),
    attempts   INT          NOT NULL,
    created_at BIGINT       NOT NULL,
    due_at     BIGINT       NOT NULL,
    token      VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NULL,
    error      LONGTEXT     NULL,
    done_at    BIGINT       NULL,
    UNIQUE INDEX umavez_deliveries_id (subscriber, id),
    INDEX umavez_deliveries_due (subscriber, state, due_at, seq),
    INDEX umavez_deliveries_aggregate (subscriber, aggregate, state, seq),
    INDEX umavez_deliveries_done (state, done_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS umavez_meta (
    name  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
) ENGINE=InnoDB;
INSERT INTO umavez_meta (name, value) VALUES ('messaging', 1) ON DUPLICATE KEY UPDATE value = greatest(value, 1);
