-- The latest events of the digest $1, $2 at the most; the oldest first.
SELECT (date_part('epoch', e.at) * 1000)::bigint, e.kind, e.attempt, e.fence, e.holder, e.detail, e.trace
FROM (
    SELECT * FROM umavez_events WHERE digest = $1::bytea ORDER BY seq DESC LIMIT $2::bigint
) e
ORDER BY e.seq
