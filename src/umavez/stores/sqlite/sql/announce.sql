-- A process that lives: prefix, host, pid, app, version, when it began, now.
INSERT INTO umavez_holders (prefix, host, pid, app, version, started_at, seen_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (prefix) DO UPDATE SET seen_at = excluded.seen_at
