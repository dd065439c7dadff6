-- As update.sql, with the same parameters; but where it is not done, no row comes back, and update.sql is asked who stands
-- there. That is rare, and looking for both at once takes the server a quarter more (docs/decisions/0025).
WITH now AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) + $1::bigint * interval '1 millisecond' AS at
)
UPDATE idempotency_records r
SET fence = CASE WHEN $4::boolean THEN nextval('umavez_fence') ELSE r.fence END,
    created_at = CASE WHEN $5::boolean THEN now.at ELSE r.created_at END,
    updated_at = now.at,
    (
        stamp, status, attempt, lease_until, expires_at, fingerprint, process_instance_id, activity_id,
        outcome_kept, result_data, error_message, progress, evidence
    ) = ROW(
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
        $18::text
    )
FROM now
WHERE r.digest = $2::bytea AND r.stamp = $3::text
RETURNING (date_part('epoch', now.at) * 1000)::bigint, r.fence
