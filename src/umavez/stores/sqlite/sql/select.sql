-- What stands under a digest.
SELECT
    stamp, fence, status, attempt, created_at, updated_at, lease_until, expires_at, fingerprint,
    process_instance_id, activity_id, outcome_kept, result_data, error_message, progress, evidence
FROM idempotency_records
WHERE digest = ?
