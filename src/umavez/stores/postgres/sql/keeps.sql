-- Whether events and origins can be kept here: what holds them may not be there yet, or not be this account's to write.
SELECT
    coalesce(has_table_privilege(to_regclass('umavez_events'), 'SELECT'), false)
    AND coalesce(has_table_privilege(to_regclass('umavez_events'), 'INSERT'), false)
    AND coalesce(has_table_privilege(to_regclass('umavez_events'), 'DELETE'), false)
    AND EXISTS (
        SELECT
        FROM pg_attribute a
        WHERE a.attrelid = to_regclass('idempotency_records')
            AND a.attname = 'origin'
            AND NOT a.attisdropped
            AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
            AND has_column_privilege(a.attrelid, a.attnum, 'INSERT')
            AND has_column_privilege(a.attrelid, a.attnum, 'UPDATE')
    )
