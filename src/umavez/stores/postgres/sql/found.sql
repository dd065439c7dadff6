-- Records with their keys; `find` adds the conditions of its query.
SELECT
    c.scope,
    c.operation_name,
    c.idempotency_key,
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
FROM idempotency_records c
