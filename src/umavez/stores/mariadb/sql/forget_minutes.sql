-- Delete some of what was counted in spans that are over for long: the span, how many milliseconds.
DELETE FROM umavez_minutes WHERE span = %s AND at < {now} - %s ORDER BY at LIMIT 1000
