-- Choose and lock what may be swept, passing over rows that somebody is just changing. Older than, at most.
SELECT hex(digest)
FROM idempotency_records
WHERE expires_at <= {now} - %s
ORDER BY expires_at
LIMIT %s
FOR UPDATE SKIP LOCKED
