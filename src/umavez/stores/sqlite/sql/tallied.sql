-- What all processes have counted in the spans since an instant: the span, the instant, the operation twice (NULL: any), how many
-- rows at the most.
SELECT
    at,
    operation,
    kind,
    sum(n),
    sum(seconds),
    sum(b0),
    sum(b1),
    sum(b2),
    sum(b3),
    sum(b4),
    sum(b5),
    sum(b6),
    sum(b7),
    sum(b8),
    sum(b9)
FROM umavez_minutes
WHERE span = ? AND at >= ? AND (? IS NULL OR operation = ?)
GROUP BY at, operation, kind
ORDER BY at, operation, kind
LIMIT ?
