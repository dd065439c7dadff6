-- An event that belongs to no swap, where a record stands and fewer than so many of its kind were kept. The digest, the kind, the
-- attempt, the fence, the holder, the detail, the trace, the digest twice, how many.
INSERT INTO umavez_events (at, digest, kind, attempt, fence, holder, detail, trace)
SELECT {now}, X%s, %s, %s, %s, %s, %s, %s
FROM (SELECT 1) one
WHERE EXISTS (SELECT 1 FROM idempotency_records WHERE digest = X%s)
    AND (SELECT count(*) FROM umavez_events WHERE digest = X%s AND kind IN ('lost', 'mismatched')) < %s
