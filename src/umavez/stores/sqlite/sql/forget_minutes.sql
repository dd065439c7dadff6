-- Delete what was counted in the oldest two of the spans that began before an instant: the span, the span, the instant.
DELETE FROM umavez_minutes
WHERE span = ? AND at IN (SELECT DISTINCT at FROM umavez_minutes WHERE span = ? AND at < ? ORDER BY at LIMIT 2)
