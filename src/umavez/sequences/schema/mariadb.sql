-- Sequences on MariaDB 10.6 or newer, version 1. Instants are milliseconds since the epoch, by the server's clock.
-- stop_at: the last number that can be given without looking at the ranges: there one ends or a blocked one begins.

CREATE TABLE IF NOT EXISTS umavez_sequences (
    organisation VARCHAR(255) NOT NULL,
    series       VARCHAR(255) NOT NULL,
    next_number  BIGINT NOT NULL,
    stop_at      BIGINT NOT NULL,
    PRIMARY KEY (organisation, series)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS umavez_sequence_ranges (
    organisation VARCHAR(255) NOT NULL,
    series       VARCHAR(255) NOT NULL,
    first_number BIGINT NOT NULL,
    last_number  BIGINT NOT NULL,
    kind         VARCHAR(16) NOT NULL CHECK (kind IN ('OPEN', 'BLOCKED')),
    reason       TEXT,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (organisation, series, kind, first_number)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS umavez_numbers (
    organisation  VARCHAR(255) NOT NULL,
    series        VARCHAR(255) NOT NULL,
    number        BIGINT NOT NULL,
    operation_key VARCHAR(255),
    state         VARCHAR(16) NOT NULL CHECK (state IN ('USED', 'VOID')),
    decided_by    VARCHAR(255),
    reason        TEXT,
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (organisation, series, number),
    UNIQUE INDEX umavez_numbers_key (organisation, series, operation_key)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS umavez_meta (
    name  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
) ENGINE=InnoDB;
INSERT INTO umavez_meta (name, value) VALUES ('sequences', 1) ON DUPLICATE KEY UPDATE value = greatest(value, 1);
