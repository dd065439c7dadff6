-- As claim.sql, and behind the draft where its claim came from; what stands is shown with its own, behind its other columns.
BEGIN NOT ATOMIC
    SELECT count(*) INTO @umavez_stands FROM idempotency_records WHERE digest = X%s;
    IF @umavez_stands THEN
        SELECT
            0, {now},
            stamp, fence, status, attempt, created_at, updated_at, lease_until, expires_at, fingerprint,
            process_instance_id, activity_id, outcome_kept, result_data, error_message, progress, evidence, origin
        FROM idempotency_records
        WHERE digest = X%s;
    ELSE
        INSERT INTO idempotency_records (
            digest, scope, operation_name, idempotency_key, fence, created_at, updated_at,
            stamp, status, attempt, lease_until, expires_at, fingerprint, process_instance_id, activity_id,
            outcome_kept, result_data, error_message, progress, evidence, origin
        )
        VALUES (
            X%s, %s, %s, %s, NEXT VALUE FOR umavez_fence, {now}, {now},
            %s, %s, %s, {now} + %s, {now} + %s, %s, %s, %s,
            %s, %s, %s, %s, %s, %s
        )
        ON DUPLICATE KEY UPDATE stamp = idempotency_records.stamp
        RETURNING
            1, {now},
            stamp, fence, status, attempt, created_at, updated_at, lease_until, expires_at, fingerprint,
            process_instance_id, activity_id, outcome_kept, result_data, error_message, progress, evidence, origin;
    END IF;
END
