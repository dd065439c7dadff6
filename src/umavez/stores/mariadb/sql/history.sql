-- The latest events of a digest, the latest first; so many at the most.
SELECT at, kind, attempt, fence, holder, detail, trace
FROM umavez_events
WHERE digest = X%s
ORDER BY seq DESC
LIMIT %s
