-- The time, and what stands under a digest; NULL where nothing does.
SELECT
    {now},
    stamp, fence, status, attempt, created_at, updated_at, lease_until, expires_at, fingerprint,
    process_instance_id, activity_id, outcome_kept, result_data, error_message, progress, evidence
FROM (SELECT 1) one
LEFT JOIN idempotency_records ON digest = X%s
