-- What stands under a digest, and where its claim came from.
SELECT
    stamp, fence, status, attempt, created_at, updated_at, lease_until, expires_at, fingerprint,
    process_instance_id, activity_id, outcome_kept, result_data, error_message, progress, evidence, origin
FROM idempotency_records
WHERE digest = ?
