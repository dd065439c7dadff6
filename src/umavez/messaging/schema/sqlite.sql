-- Messages on SQLite, version 1. Instants are milliseconds since the epoch.
-- due_at: when a row may be claimed: at once, after a pause, or when the lease of whoever claimed it lapses.
-- seq says in which order the messages of one aggregate were written; nobody reads "everything above the last seq",
-- because a transaction that commits late would be skipped for ever.

CREATE TABLE IF NOT EXISTS umavez_outbox (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT    NOT NULL,
    topic      TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    headers    TEXT,
    aggregate  TEXT,
    state      TEXT    NOT NULL CHECK (state IN ('WAITING', 'DONE', 'DEAD', 'DISCARDED')),
    attempts   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    due_at     INTEGER NOT NULL,
    token      TEXT,
    error      TEXT,
    done_at    INTEGER
);
CREATE UNIQUE INDEX IF NOT EXISTS umavez_outbox_id ON umavez_outbox (id);
CREATE INDEX IF NOT EXISTS umavez_outbox_due ON umavez_outbox (due_at, seq) WHERE state = 'WAITING';
CREATE INDEX IF NOT EXISTS umavez_outbox_aggregate ON umavez_outbox (aggregate, seq)
    WHERE state IN ('WAITING', 'DEAD') AND aggregate IS NOT NULL;
CREATE INDEX IF NOT EXISTS umavez_outbox_done ON umavez_outbox (done_at) WHERE state = 'DONE';
CREATE INDEX IF NOT EXISTS umavez_outbox_discarded ON umavez_outbox (done_at) WHERE state = 'DISCARDED';
CREATE INDEX IF NOT EXISTS umavez_outbox_dead ON umavez_outbox (seq) WHERE state = 'DEAD';

CREATE TABLE IF NOT EXISTS umavez_subscriptions (
    topic      TEXT NOT NULL,
    subscriber TEXT NOT NULL,
    PRIMARY KEY (topic, subscriber)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS umavez_deliveries (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    subscriber TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    topic      TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    headers    TEXT,
    aggregate  TEXT,
    state      TEXT    NOT NULL CHECK (state IN ('WAITING', 'DONE', 'DEAD', 'DISCARDED')),
    attempts   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    due_at     INTEGER NOT NULL,
    token      TEXT,
    error      TEXT,
    done_at    INTEGER
);
CREATE UNIQUE INDEX IF NOT EXISTS umavez_deliveries_id ON umavez_deliveries (subscriber, id);
CREATE INDEX IF NOT EXISTS umavez_deliveries_due ON umavez_deliveries (subscriber, due_at, seq) WHERE state = 'WAITING';
CREATE INDEX IF NOT EXISTS umavez_deliveries_aggregate ON umavez_deliveries (subscriber, aggregate, seq)
    WHERE state IN ('WAITING', 'DEAD') AND aggregate IS NOT NULL;
CREATE INDEX IF NOT EXISTS umavez_deliveries_done ON umavez_deliveries (done_at) WHERE state = 'DONE';
CREATE INDEX IF NOT EXISTS umavez_deliveries_discarded ON umavez_deliveries (done_at) WHERE state = 'DISCARDED';
CREATE INDEX IF NOT EXISTS umavez_deliveries_dead ON umavez_deliveries (subscriber) WHERE state = 'DEAD';

CREATE TABLE IF NOT EXISTS umavez_meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT OR IGNORE INTO umavez_meta VALUES ('messaging', 1);
