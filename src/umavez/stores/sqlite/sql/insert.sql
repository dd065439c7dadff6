-- Put a draft where nothing stands. The key, the fence as id and as fence, now, now, the draft; nothing changes where
-- something stands.
INSERT INTO idempotency_records (
    digest, scope, operation_name, idempotency_key, id, fence, created_at, updated_at,
    stamp, status, attempt, lease_until, expires_at, fingerprint, process_instance_id, activity_id,
    outcome_kept, result_data, error_message, progress, evidence
)
VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?
)
ON CONFLICT (digest) DO NOTHING
