-- Messages on PostgreSQL, version 1. Instants are milliseconds since the epoch, by the server's clock.
-- due_at: when a row may be claimed: at once, after a pause, or when the lease of whoever claimed it lapses.
-- seq says in which order the messages of one aggregate were written; nobody reads "everything above the last seq",
-- because a transaction that commits late would be skipped for ever.

CREATE TABLE IF NOT EXISTS umavez_outbox (
    seq        bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         text    NOT NULL,
    topic      text    NOT NULL,
    body       text    NOT NULL,
    headers    text,
    aggregate  text,
    state      text    NOT NULL CHECK (state IN ('WAITING', 'DONE', 'DEAD', 'DISCARDED')),
    attempts   integer NOT NULL,
    created_at bigint  NOT NULL,
    due_at     bigint  NOT NULL,
    token      text,
    error      text,
    done_at    bigint
) WITH (
    -- Each row is written once, updated twice and deleted: the default of a fifth of the table cleans far too late.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);
CREATE UNIQUE INDEX IF NOT EXISTS umavez_outbox_id ON umavez_outbox (id);
CREATE INDEX IF NOT EXISTS umavez_outbox_due ON umavez_outbox (due_at, seq) WHERE state = 'WAITING';
CREATE INDEX IF NOT EXISTS umavez_outbox_aggregate ON umavez_outbox (aggregate, seq)
    WHERE state IN ('WAITING', 'DEAD') AND aggregate IS NOT NULL;
CREATE INDEX IF NOT EXISTS umavez_outbox_done ON umavez_outbox (done_at) WHERE state = 'DONE';
CREATE INDEX IF NOT EXISTS umavez_outbox_discarded ON umavez_outbox (done_at) WHERE state = 'DISCARDED';
CREATE INDEX IF NOT EXISTS umavez_outbox_dead ON umavez_outbox (seq) WHERE state = 'DEAD';

CREATE TABLE IF NOT EXISTS umavez_subscriptions (
    topic      text NOT NULL,
    subscriber text NOT NULL,
    PRIMARY KEY (topic, subscriber)
);

CREATE TABLE IF NOT EXISTS umavez_deliveries (
    seq        bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscriber text    NOT NULL,
    id         text    NOT NULL,
    topic      text    NOT NULL,
    body       text    NOT NULL,
    headers    text,
    aggregate  text,
    state      text    NOT NULL CHECK (state IN ('WAITING', 'DONE', 'DEAD', 'DISCARDED')),
    attempts   integer NOT NULL,
    created_at bigint  NOT NULL,
    due_at     bigint  NOT NULL,
    token      text,
    error      text,
    done_at    bigint
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);
CREATE UNIQUE INDEX IF NOT EXISTS umavez_deliveries_id ON umavez_deliveries (subscriber, id);
CREATE INDEX IF NOT EXISTS umavez_deliveries_due ON umavez_deliveries (subscriber, due_at, seq) WHERE state = 'WAITING';
CREATE INDEX IF NOT EXISTS umavez_deliveries_aggregate ON umavez_deliveries (subscriber, aggregate, seq)
    WHERE state IN ('WAITING', 'DEAD') AND aggregate IS NOT NULL;
CREATE INDEX IF NOT EXISTS umavez_deliveries_done ON umavez_deliveries (done_at) WHERE state = 'DONE';
CREATE INDEX IF NOT EXISTS umavez_deliveries_discarded ON umavez_deliveries (done_at) WHERE state = 'DISCARDED';
CREATE INDEX IF NOT EXISTS umavez_deliveries_dead ON umavez_deliveries (subscriber) WHERE state = 'DEAD';

CREATE TABLE IF NOT EXISTS umavez_meta (
    name  text   PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO umavez_meta VALUES ('messaging', 1) ON CONFLICT (name) DO NOTHING;
