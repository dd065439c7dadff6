-- Put a draft where another stands, with a new fence, or show what stands. Whether it is fresh, the draft, the digest, the expected
-- stamp, the digest.
--
-- The fence comes back through a variable set by the very write: read afterwards, it could be a rival's.
BEGIN NOT ATOMIC
    UPDATE idempotency_records
    SET fence = (@umavez_fence := NEXT VALUE FOR umavez_fence),
        updated_at = (@umavez_now := {now}),
        created_at = IF(%s, {now}, created_at),
        stamp = %s,
        status = %s,
        attempt = %s,
        lease_until = {now} + %s,
        expires_at = {now} + %s,
        fingerprint = %s,
        process_instance_id = %s,
        activity_id = %s,
        outcome_kept = %s,
        result_data = %s,
        error_message = %s,
        progress = %s,
        evidence = %s
    WHERE digest = X%s AND stamp = %s;
    IF ROW_COUNT() = 1 THEN
        SELECT 1, @umavez_now, @umavez_fence;
    ELSE
        SELECT
            0, {now},
            stamp, fence, status, attempt, created_at, updated_at, lease_until, expires_at, fingerprint,
            process_instance_id, activity_id, outcome_kept, result_data, error_message, progress, evidence
        FROM (SELECT 1) one
        LEFT JOIN idempotency_records ON digest = X%s;
    END IF;
END
