-- What a process has counted in some spans, in the place of what it had said of them before: the span, the process, rows as JSON.
INSERT INTO umavez_minutes (
    span, process, at, operation, kind, n, seconds,
    b0, b1, b2, b3, b4, b5, b6, b7, b8, b9
)
SELECT
    ?,
    ?,
    json_extract(value, '$[0]'),
    json_extract(value, '$[1]'),
    json_extract(value, '$[2]'),
    json_extract(value, '$[3]'),
    json_extract(value, '$[4]'),
    json_extract(value, '$[5]'),
    json_extract(value, '$[6]'),
    json_extract(value, '$[7]'),
    json_extract(value, '$[8]'),
    json_extract(value, '$[9]'),
    json_extract(value, '$[10]'),
    json_extract(value, '$[11]'),
    json_extract(value, '$[12]'),
    json_extract(value, '$[13]'),
    json_extract(value, '$[14]')
FROM json_each(?)
WHERE true
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
