-- What all processes have counted in the spans since: $1 offset, $2 the span, $3 how many milliseconds ago, $4 the operation (NULL:
-- any), $5 how many rows at the most.
SELECT
    m.at,
    m.operation,
    m.kind,
    sum(m.n)::bigint,
    sum(m.seconds),
    sum(m.b0)::bigint,
    sum(m.b1)::bigint,
    sum(m.b2)::bigint,
    sum(m.b3)::bigint,
    sum(m.b4)::bigint,
    sum(m.b5)::bigint,
    sum(m.b6)::bigint,
    sum(m.b7)::bigint,
    sum(m.b8)::bigint,
    sum(m.b9)::bigint
FROM umavez_minutes m
WHERE m.span = $2::bigint
    -- Not clock_timestamp(), which moves with every row: no index leads to what moves, and the whole table would be read.
    AND m.at >= (date_part('epoch', statement_timestamp()) * 1000)::bigint + $1::bigint - $3::bigint
    AND ($4::text IS NULL OR m.operation = $4::text)
GROUP BY m.at, m.operation, m.kind
ORDER BY m.at, m.operation COLLATE "C", m.kind COLLATE "C"
LIMIT $5::bigint
