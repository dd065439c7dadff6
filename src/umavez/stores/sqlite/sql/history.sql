-- The latest events of a digest, so many at the most; the oldest first.
SELECT at, kind, attempt, fence, holder, detail, trace
FROM (SELECT * FROM umavez_events WHERE digest = ? ORDER BY seq DESC LIMIT ?)
ORDER BY seq
