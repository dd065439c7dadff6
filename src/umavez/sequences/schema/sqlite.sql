-- Sequences on SQLite, version 1. Instants are milliseconds since the epoch.
-- stop_at: the last number that can be given without looking at the ranges: there one ends or a blocked one begins.

CREATE TABLE IF NOT EXISTS umavez_sequences (
    organisation TEXT   NOT NULL,
    series       TEXT   NOT NULL,
    next_number  INTEGER NOT NULL,
    stop_at      INTEGER NOT NULL,
    PRIMARY KEY (organisation, series)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS umavez_sequence_ranges (
    organisation TEXT   NOT NULL,
    series       TEXT   NOT NULL,
    first_number INTEGER NOT NULL,
    last_number  INTEGER NOT NULL,
    kind         TEXT   NOT NULL CHECK (kind IN ('OPEN', 'BLOCKED')),
    reason       TEXT,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (organisation, series, kind, first_number)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS umavez_numbers (
    organisation  TEXT   NOT NULL,
    series        TEXT   NOT NULL,
    number        INTEGER NOT NULL,
    operation_key TEXT,
    state         TEXT   NOT NULL CHECK (state IN ('USED', 'VOID')),
    decided_by    TEXT,
    reason        TEXT,
    created_at    INTEGER NOT NULL,
    PRIMARY KEY (organisation, series, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS umavez_numbers_key ON umavez_numbers (organisation, series, operation_key);

CREATE TABLE IF NOT EXISTS umavez_meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT OR IGNORE INTO umavez_meta VALUES ('sequences', 1);
