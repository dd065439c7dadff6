-- The processes that were announced, the last seen first; $1 at the most.
SELECT
    prefix, host, pid, app, version, 0::bigint,
    (date_part('epoch', started_at) * 1000)::bigint,
    (date_part('epoch', seen_at) * 1000)::bigint
FROM umavez_holders
ORDER BY seen_at DESC, prefix
LIMIT $1::bigint
