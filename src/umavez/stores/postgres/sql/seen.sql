-- The time, and what stands under the digest $2; NULL where nothing does. $1 offset.
WITH now AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) + $1::bigint * interval '1 millisecond' AS at
)
SELECT
    (date_part('epoch', now.at) * 1000)::bigint,
    c.stamp,
    c.fence,
    c.status,
    c.attempt,
    (date_part('epoch', c.created_at) * 1000)::bigint,
    (date_part('epoch', c.updated_at) * 1000)::bigint,
    (date_part('epoch', c.lease_until) * 1000)::bigint,
    (date_part('epoch', c.expires_at) * 1000)::bigint,
    c.fingerprint,
    c.process_instance_id,
    c.activity_id,
    c.outcome_kept,
    c.result_data,
    c.error_message,
    c.progress,
    c.evidence
FROM now
LEFT JOIN idempotency_records c ON c.digest = $2::bytea
