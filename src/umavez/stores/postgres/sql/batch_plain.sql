-- Many plain swaps (`arrays.plain` says which): first claims, and changes of first attempts that claim nothing. In one row
-- the fences and digests of those that were written; then what stands where a claim found its key taken, its digest last.
-- A change without an answer is sent again by itself. $1 offset; $2 to $11 the claims, $12 to $25 the changes, in the
-- order of their names.
--
-- Half of what batch.sql does for any swap is not needed here (docs/decisions/0025). Rows come sorted by digest and are
-- met in that order by nested loops, all changes before all claims as there, so two batches lock in the same order.
WITH now AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) + $1::bigint * interval '1 millisecond' AS at
),
updated AS (
    UPDATE idempotency_records r
    SET updated_at = (SELECT at FROM now),
        stamp = i.stamp,
        status = i.status,
        lease_until = (SELECT at FROM now) + i.lease * interval '1 millisecond',
        expires_at = (SELECT at FROM now) + i.keep * interval '1 millisecond',
        fingerprint = i.fingerprint,
        process_instance_id = i.process_instance_id,
        activity_id = i.activity_id,
        outcome_kept = coalesce(i.outcome_kept, false),
        result_data = i.result_data,
        error_message = i.error_message,
        progress = i.progress,
        evidence = i.evidence
    FROM unnest(
        $12::bytea[], $13::text[], $14::text[], $15::text[], $16::bigint[], $17::bigint[], $18::text[], $19::text[],
        $20::text[], $21::boolean[], $22::text[], $23::text[], $24::text[], $25::text[]
    ) AS i (
        digest, expected, stamp, status, lease, keep, fingerprint, process_instance_id,
        activity_id, outcome_kept, result_data, error_message, progress, evidence
    )
    -- The attempt stays as it is, so that the column made from it is not made again.
    WHERE r.digest = i.digest AND r.stamp = i.expected AND r.attempt = 1
    RETURNING r.digest, r.fence
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
        c.digest
    FROM unnest($2::bytea[]) AS i (digest)
    JOIN idempotency_records c ON c.digest = i.digest
),
inserted AS (
    INSERT INTO idempotency_records (
        digest, scope, operation_name, idempotency_key, fence, created_at, updated_at,
        stamp, status, attempt, lease_until, fingerprint, process_instance_id, activity_id, outcome_kept, evidence
    )
    SELECT
        i.digest,
        i.scope,
        i.operation_name,
        i.idempotency_key,
        nextval('umavez_fence'),
        (SELECT at FROM now),
        (SELECT at FROM now),
        i.stamp,
        'PENDING',
        1,
        (SELECT at FROM now) + i.lease * interval '1 millisecond',
        i.fingerprint,
        i.process_instance_id,
        i.activity_id,
        false,
        i.evidence
    FROM unnest(
        $2::bytea[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[],
        $10::text[], $11::text[]
    ) AS i (
        digest, scope, operation_name, idempotency_key, stamp, lease, fingerprint, process_instance_id,
        activity_id, evidence
    )
    WHERE i.digest NOT IN (SELECT digest FROM standing)
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
