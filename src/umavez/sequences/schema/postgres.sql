-- Sequences on PostgreSQL, version 1. Instants are milliseconds since the epoch, by the server's clock.
-- stop_at: the last number that can be given without looking at the ranges: there one ends or a blocked one begins.

CREATE TABLE IF NOT EXISTS umavez_sequences (
    organisation text   NOT NULL,
    series       text   NOT NULL,
    next_number  bigint NOT NULL,
    stop_at      bigint NOT NULL,
    PRIMARY KEY (organisation, series)
) WITH (fillfactor = 20);  -- one row, written for every number: room on its page keeps the updates there

CREATE TABLE IF NOT EXISTS umavez_sequence_ranges (
    organisation text   NOT NULL,
    series       text   NOT NULL,
    first_number bigint NOT NULL,
    last_number  bigint NOT NULL,
    kind         text   NOT NULL CHECK (kind IN ('OPEN', 'BLOCKED')),
    reason       text,
    created_at   bigint NOT NULL,
    PRIMARY KEY (organisation, series, kind, first_number)
);

CREATE TABLE IF NOT EXISTS umavez_numbers (
    organisation  text   NOT NULL,
    series        text   NOT NULL,
    number        bigint NOT NULL,
    operation_key text,
    state         text   NOT NULL CHECK (state IN ('USED', 'VOID')),
    decided_by    text,
    reason        text,
    created_at    bigint NOT NULL,
    PRIMARY KEY (organisation, series, number)
);
CREATE UNIQUE INDEX IF NOT EXISTS umavez_numbers_key ON umavez_numbers (organisation, series, operation_key);

CREATE TABLE IF NOT EXISTS umavez_meta (
    name  text   PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO umavez_meta VALUES ('sequences', 1) ON CONFLICT (name) DO NOTHING;
