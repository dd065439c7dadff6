-- What a process has counted in some spans, in the place of what it had said of them before: the span, the process, rows as JSON.
INSERT INTO umavez_minutes (
    span, process, at, operation, kind, n, seconds,
    b0, b1, b2, b3, b4, b5, b6, b7, b8, b9
)
SELECT
    %s, %s, g.at, g.operation, g.kind, g.n, g.seconds,
    g.b0, g.b1, g.b2, g.b3, g.b4, g.b5, g.b6, g.b7, g.b8, g.b9
FROM JSON_TABLE(
    %s,
    '$[*]' COLUMNS (
        at BIGINT PATH '$[0]',
        operation VARCHAR(255) PATH '$[1]',
        kind VARCHAR(32) PATH '$[2]',
        n BIGINT PATH '$[3]',
        seconds DOUBLE PATH '$[4]',
        b0 BIGINT PATH '$[5]',
        b1 BIGINT PATH '$[6]',
        b2 BIGINT PATH '$[7]',
        b3 BIGINT PATH '$[8]',
        b4 BIGINT PATH '$[9]',
        b5 BIGINT PATH '$[10]',
        b6 BIGINT PATH '$[11]',
        b7 BIGINT PATH '$[12]',
        b8 BIGINT PATH '$[13]',
        b9 BIGINT PATH '$[14]'
    )
) g
ON DUPLICATE KEY UPDATE
    n = VALUES(n),
    seconds = VALUES(seconds),
    b0 = VALUES(b0),
    b1 = VALUES(b1),
    b2 = VALUES(b2),
    b3 = VALUES(b3),
    b4 = VALUES(b4),
    b5 = VALUES(b5),
    b6 = VALUES(b6),
    b7 = VALUES(b7),
    b8 = VALUES(b8),
    b9 = VALUES(b9)
