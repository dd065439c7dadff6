-- The store's time. $1 offset.
WITH now AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) + $1::bigint * interval '1 millisecond' AS at
)
SELECT (date_part('epoch', now.at) * 1000)::bigint
FROM now
