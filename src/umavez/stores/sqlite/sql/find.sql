-- Records with their keys; `find` adds the conditions of its query.
SELECT
    scope, operation_name, idempotency_key,
    stamp, fence, status, attempt, created_at, updated_at, lease_until, expires_at, fingerprint,
    process_instance_id, activity_id, outcome_kept, result_data, error_message, progress, evidence
FROM idempotency_records
