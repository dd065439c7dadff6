-- An event that belongs to no swap, where a record stands and fewer than $9 of its kind were kept: $1 offset, $2 digest, $3 kind,
-- $4 attempt, $5 fence, $6 holder, $7 detail, $8 trace.
INSERT INTO umavez_events (at, digest, kind, attempt, fence, holder, detail, trace)
SELECT
    date_trunc('milliseconds', clock_timestamp()) + $1::bigint * interval '1 millisecond',
    $2::bytea, $3::text, $4::bigint::integer, $5::bigint, $6::text, $7::text, $8::text
WHERE EXISTS (SELECT FROM idempotency_records WHERE digest = $2::bytea)
    AND $9::bigint > (
        SELECT count(*) FROM umavez_events WHERE digest = $2::bytea AND kind IN ('lost', 'mismatched')
    )
