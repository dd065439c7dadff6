-- Delete the events of what sweep.sql is about to delete, in its transaction: an instant, so many records at the most.
DELETE FROM umavez_events
WHERE digest IN (SELECT digest FROM idempotency_records WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)
