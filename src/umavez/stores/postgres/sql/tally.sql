-- What a process has counted in some spans, in the place of what it had said of them before: $1 offset, $2 the span, $3 the process,
-- $4 rows as JSON. Of what was kept for longer than $5 milliseconds some is forgotten. The time comes back.
WITH now AS MATERIALIZED (
    SELECT (date_part('epoch', date_trunc('milliseconds', clock_timestamp())) * 1000)::bigint + $1::bigint AS at
),
forgotten AS (
    DELETE FROM umavez_minutes
    WHERE ctid = ANY (
        ARRAY(
            SELECT m.ctid
            FROM umavez_minutes m
            WHERE m.span = $2::bigint AND m.at < (SELECT now.at - $5::bigint FROM now)
            LIMIT 1000
            FOR UPDATE SKIP LOCKED
        )
    )
),
written AS (
    INSERT INTO umavez_minutes (
        span, at, operation, kind, process, n, seconds,
        b0, b1, b2, b3, b4, b5, b6, b7, b8, b9
    )
    SELECT
        $2::bigint,
        (g.row ->> 0)::bigint,
        g.row ->> 1,
        g.row ->> 2,
        $3::text,
        (g.row ->> 3)::bigint,
        (g.row ->> 4)::double precision,
        (g.row ->> 5)::bigint,
        (g.row ->> 6)::bigint,
        (g.row ->> 7)::bigint,
        (g.row ->> 8)::bigint,
        (g.row ->> 9)::bigint,
        (g.row ->> 10)::bigint,
        (g.row ->> 11)::bigint,
        (g.row ->> 12)::bigint,
        (g.row ->> 13)::bigint,
        (g.row ->> 14)::bigint
    FROM json_array_elements($4::json) AS g (row)
    ON CONFLICT (span, at, operation, kind, process) DO UPDATE
    SET n = excluded.n,
        seconds = excluded.seconds,
        b0 = excluded.b0,
        b1 = excluded.b1,
        b2 = excluded.b2,
        b3 = excluded.b3,
        b4 = excluded.b4,
        b5 = excluded.b5,
        b6 = excluded.b6,
        b7 = excluded.b7,
        b8 = excluded.b8,
        b9 = excluded.b9
)
SELECT now.at FROM now
