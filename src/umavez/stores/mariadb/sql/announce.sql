-- A process that lives: prefix, host, pid, app, version, its age in milliseconds.
INSERT INTO umavez_holders (prefix, host, pid, app, version, started_at, seen_at)
VALUES (%s, %s, %s, %s, %s, {now} - %s, {now})
ON DUPLICATE KEY UPDATE seen_at = VALUES(seen_at)
