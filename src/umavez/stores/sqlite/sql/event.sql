-- The event of a swap that was just done, in its transaction. The time, the digest, the kind, the attempt, the fence, the holder, the
-- detail, the trace.
INSERT INTO umavez_events (at, digest, kind, attempt, fence, holder, detail, trace)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
