-- As joined_update.sql, and where it was written its event with it, as in update_telling.sql: $20 kind, $21 detail, $22 trace;
-- $23 where the claim came from.
WITH now AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) + $1::bigint * interval '1 millisecond' AS at
),
gate AS MATERIALIZED (
    SELECT CASE
        WHEN $4::boolean THEN pg_try_advisory_xact_lock($19::bigint)
        ELSE true
    END AS opened
),
written AS (
    UPDATE idempotency_records r
    SET fence = CASE WHEN $4::boolean THEN nextval('umavez_fence') ELSE r.fence END,
        created_at = CASE WHEN $5::boolean THEN now.at ELSE r.created_at END,
        updated_at = now.at,
        origin = coalesce($23::text, r.origin),
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
    FROM now, gate
    WHERE gate.opened AND r.digest = $2::bytea AND r.stamp = $3::text
    RETURNING r.fence
),
kept AS (
    INSERT INTO umavez_events (at, digest, kind, attempt, fence, holder, detail, trace)
    SELECT
        now.at, $2::bytea, $20::text, $8::bigint::integer, written.fence, split_part($6::text, '/', 1), $21::text, $22::text
    FROM written, now
    WHERE $20::text IS NOT NULL
),
forgotten AS (
    DELETE FROM umavez_events
    WHERE seq IN (
        SELECT e.seq
        FROM written, LATERAL (
            SELECT seq FROM umavez_events WHERE digest = $2::bytea ORDER BY seq DESC OFFSET 99
        ) e
        WHERE $20::text IS NOT NULL
    )
)
SELECT
    (date_part('epoch', now.at) * 1000)::bigint,
    written.fence,
    NULL::text, NULL::bigint, NULL::text, NULL::integer, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
    NULL::text, NULL::text, NULL::text, NULL::boolean, NULL::text, NULL::text, NULL::text, NULL::text
FROM written, now
UNION ALL
SELECT
    (date_part('epoch', now.at) * 1000)::bigint,
    NULL,
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
WHERE c.stamp IS DISTINCT FROM $3::text
