-- Of a key's events the latest so many stay: the digest twice, how many.
DELETE FROM umavez_events
WHERE digest = ? AND seq <= (SELECT seq FROM umavez_events WHERE digest = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)
