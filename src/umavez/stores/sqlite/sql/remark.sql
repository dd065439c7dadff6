-- An event that belongs to no swap, where a record stands and fewer than so many of its kind were kept. As event.sql, then the
-- digest twice, how many.
INSERT INTO umavez_events (at, digest, kind, attempt, fence, holder, detail, trace)
SELECT ?, ?, ?, ?, ?, ?, ?, ?
WHERE EXISTS (SELECT 1 FROM idempotency_records WHERE digest = ?)
    AND (SELECT count(*) FROM umavez_events WHERE digest = ? AND kind IN ('lost', 'mismatched')) < ?
