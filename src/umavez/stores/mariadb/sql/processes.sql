-- The processes that were announced, the last seen first; so many at the most.
SELECT prefix, host, pid, app, version, 0, started_at, seen_at
FROM umavez_holders
ORDER BY seen_at DESC, prefix
LIMIT %s
