-- Many swaps, each a row of the arrays. In one row the fences and digests of those that were written, then what stands
-- where one was not, its digest last. $1 offset, $2 on the arrays in the order of their names below.
--
-- Rows come sorted by digest and are met in that order by nested loops, so two batches lock in the same order.
WITH now AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) + $1::bigint * interval '1 millisecond' AS at
),
incoming AS MATERIALIZED (
    SELECT * FROM unnest(
        $2::bytea[], $3::text[], $4::text[], $5::text[], $6::text[], $7::boolean[], $8::boolean[],
        $9::text[], $10::text[], $11::integer[], $12::bigint[], $13::bigint[], $14::text[], $15::text[],
        $16::text[], $17::boolean[], $18::text[], $19::text[], $20::text[], $21::text[]
    ) AS u (
        digest, expected, scope, operation_name, idempotency_key, claims, fresh,
        stamp, status, attempt, lease, keep, fingerprint, process_instance_id,
        activity_id, outcome_kept, result_data, error_message, progress, evidence
    )
),
updated AS (
    UPDATE idempotency_records r
    SET fence = CASE WHEN i.claims THEN nextval('umavez_fence') ELSE r.fence END,
        created_at = CASE WHEN i.fresh THEN now.at ELSE r.created_at END,
        updated_at = now.at,
        (
            stamp, status, attempt, lease_until, expires_at, fingerprint, process_instance_id, activity_id,
            outcome_kept, result_data, error_message, progress, evidence
        ) = ROW(
            i.stamp,
            i.status,
            i.attempt,
            now.at + i.lease * interval '1 millisecond',
            now.at + i.keep * interval '1 millisecond',
            i.fingerprint,
            i.process_instance_id,
            i.activity_id,
            coalesce(i.outcome_kept, false),
            i.result_data,
            i.error_message,
            i.progress,
            i.evidence
        )
    FROM incoming i, now
    WHERE i.expected IS NOT NULL AND r.digest = i.digest AND r.stamp = i.expected
    RETURNING r.digest, r.fence
),
-- Every key is looked up once: what was updated is not asked for again. What a rival changed between the snapshot and the lock is
-- in neither, and is sent again. NOT IN is a hashed subplan, which the settings of our connections do not forbid.
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
        i.digest AS asked
    FROM (SELECT digest, expected FROM incoming WHERE digest NOT IN (SELECT digest FROM updated)) i
    LEFT JOIN idempotency_records c ON c.digest = i.digest
    WHERE c.stamp IS DISTINCT FROM i.expected
),
inserted AS (
    INSERT INTO idempotency_records (
        digest, scope, operation_name, idempotency_key, fence, created_at, updated_at,
        stamp, status, attempt, lease_until, expires_at, fingerprint, process_instance_id, activity_id,
        outcome_kept, result_data, error_message, progress, evidence
    )
    SELECT
        i.digest,
        i.scope,
        i.operation_name,
        i.idempotency_key,
        nextval('umavez_fence'),
        now.at,
        now.at,
        i.stamp,
        i.status,
        i.attempt,
        now.at + i.lease * interval '1 millisecond',
        now.at + i.keep * interval '1 millisecond',
        i.fingerprint,
        i.process_instance_id,
        i.activity_id,
        coalesce(i.outcome_kept, false),
        i.result_data,
        i.error_message,
        i.progress,
        i.evidence
    FROM incoming i, now
    WHERE i.expected IS NULL AND i.digest NOT IN (SELECT asked FROM standing)
    ON CONFLICT (digest) DO NOTHING
    RETURNING digest, fence
)
SELECT
    (SELECT (date_part('epoch', at) * 1000)::bigint FROM now),
    array_agg(done.fence),
    array_agg(done.digest),
    NULL::text, NULL::bigint, NULL::text, NULL::integer, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
    NULL::text, NULL::text, NULL::text, NULL::boolean, NULL::text, NULL::text, NULL::text, NULL::text,
    NULL::bytea
FROM (SELECT digest, fence FROM updated UNION ALL SELECT digest, fence FROM inserted) done
UNION ALL
SELECT (SELECT (date_part('epoch', at) * 1000)::bigint FROM now), NULL, NULL, standing.*
FROM standing
