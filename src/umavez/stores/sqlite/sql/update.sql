-- Put a draft where another stands. Now, the draft, the digest, the expected stamp; nothing changes where it does not.
--
-- A statement of its own beside take.sql, because SQLite renews every index on a column that is named, whether its value
-- changes or not.
UPDATE idempotency_records
SET updated_at = ?,
    (
        stamp, status, attempt, lease_until, expires_at, fingerprint, process_instance_id, activity_id,
        outcome_kept, result_data, error_message, progress, evidence
    ) = (
        ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?
    )
WHERE digest = ? AND stamp = ?
