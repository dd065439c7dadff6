-- As update.sql, with a new fence (NULL: the one it has) and, where the draft is fresh, a new beginning. The fence,
-- whether it is fresh, now, then as there.
UPDATE idempotency_records
SET fence = coalesce(?, fence),
    created_at = CASE WHEN ? THEN ? ELSE created_at END,
    updated_at = ?,
    (
        stamp, status, attempt, lease_until, expires_at, fingerprint, process_instance_id, activity_id,
        outcome_kept, result_data, error_message, progress, evidence
    ) = (
        ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?
    )
WHERE digest = ? AND stamp = ?
