-- As insert.sql, and with where the claim came from: $19, which is kept with it. What stands is shown with its own, behind
-- its other columns.
WITH now AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) + $1::bigint * interval '1 millisecond' AS at
),
standing AS MATERIALIZED (
    SELECT
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
        c.evidence,
        c.origin
    FROM idempotency_records c
    WHERE c.digest = $2::bytea
),
written AS (
    INSERT INTO idempotency_records (
        digest, scope, operation_name, idempotency_key, fence, created_at, updated_at,
        stamp, status, attempt, lease_until, expires_at, fingerprint, process_instance_id, activity_id,
        outcome_kept, result_data, error_message, progress, evidence, origin
    )
    SELECT
        $2::bytea,
        $3::text,
        $4::text,
        $5::text,
        nextval('umavez_fence'),
        now.at,
        now.at,
        $6::text,
        $7::text,
        $8::bigint::integer,
        now.at + $9::bigint * interval '1 millisecond',
        now.at + $10::bigint * interval '1 millisecond',
        $11::text,
        $12::text,
        $13::text,
        $14::boolean,
        $15::text,
        $16::text,
        $17::text,
        $18::text,
        $19::text
    FROM now
    WHERE NOT EXISTS (SELECT FROM standing)
    ON CONFLICT (digest) DO NOTHING
    RETURNING fence
)
SELECT (date_part('epoch', now.at) * 1000)::bigint, written.fence, standing.*
FROM now
LEFT JOIN written ON true
LEFT JOIN standing ON true
WHERE written.fence IS NOT NULL OR standing.stamp IS NOT NULL
