-- A process that lives: $1 offset, $2 prefix, $3 host, $4 pid, $5 app, $6 version, $7 its age in milliseconds. Those that were
-- not seen for $8 milliseconds are forgotten.
WITH now AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) + $1::bigint * interval '1 millisecond' AS at
),
forgotten AS (
    DELETE FROM umavez_holders h
    USING now
    WHERE h.seen_at < now.at - $8::bigint * interval '1 millisecond' AND h.prefix <> $2::text
)
INSERT INTO umavez_holders (prefix, host, pid, app, version, started_at, seen_at)
SELECT
    $2::text, $3::text, $4::bigint, $5::text, $6::text, now.at - $7::bigint * interval '1 millisecond', now.at
FROM now
ON CONFLICT (prefix) DO UPDATE SET seen_at = excluded.seen_at
