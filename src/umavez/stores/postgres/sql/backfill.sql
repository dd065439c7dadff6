-- An `id` for the next records that have none: how many got one, and where to go on. The first parameter is the digest
-- to begin after, the second how many at most. In the order of digests, as every batch of swaps locks; what a
-- transaction holds is passed over and met again in the next round.
WITH chosen AS MATERIALIZED (
    SELECT digest
    FROM idempotency_records
    WHERE digest > %s AND id IS NULL
    ORDER BY digest
    LIMIT %s
    FOR UPDATE SKIP LOCKED
),
given AS (
    UPDATE idempotency_records r
    SET id = nextval('umavez_first_ids')
    FROM chosen
    WHERE r.digest = chosen.digest
    RETURNING r.digest
)
SELECT (SELECT count(*) FROM given), (SELECT digest FROM given ORDER BY digest DESC LIMIT 1)
