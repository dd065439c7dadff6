-- Delete what expired before an instant, so many at the most.
DELETE FROM idempotency_records
WHERE rowid IN (SELECT rowid FROM idempotency_records WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)
