-- As sweep.sql, and with the records their events.
WITH now AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) + $1::bigint * interval '1 millisecond' AS at
),
dead AS MATERIALIZED (
    SELECT r.ctid AS place
    FROM idempotency_records r
    -- The edge is a scalar subquery, so that the index on expires_at is walked from its start and left at the limit: as
    -- a join it would be sorted whole for every batch.
    WHERE r.expires_at <= (SELECT now.at - $2::bigint * interval '1 millisecond' FROM now)
    ORDER BY r.expires_at
    LIMIT $3::bigint
    FOR UPDATE OF r SKIP LOCKED
),
gone AS (
    DELETE FROM idempotency_records
    WHERE ctid = ANY (ARRAY(SELECT place FROM dead))
    RETURNING digest
),
forgotten AS (
    DELETE FROM umavez_events
    WHERE digest IN (SELECT digest FROM gone)
)
SELECT count(*) FROM gone
