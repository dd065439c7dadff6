-- The event of a change that was just made, in its transaction, behind whose IF it goes; of a key's events the latest 100 stay
-- (core/telling/events.py). The digest, the kind, the attempt, the holder, the detail, the trace, the digest twice.
INSERT INTO umavez_events (at, digest, kind, attempt, fence, holder, detail, trace)
VALUES (@umavez_now, X%s, %s, %s, @umavez_fence, %s, %s, %s);
DELETE FROM umavez_events
WHERE digest = X%s
    AND seq <= (
        SELECT edge
        FROM (SELECT seq AS edge FROM umavez_events WHERE digest = X%s ORDER BY seq DESC LIMIT 1 OFFSET 100) kept
    );
