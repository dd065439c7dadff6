-- Whether events can be kept here: the tables may not be there yet, or not be this account's to write.
SELECT
    coalesce(has_table_privilege(to_regclass('umavez_events'), 'SELECT'), false)
    AND coalesce(has_table_privilege(to_regclass('umavez_events'), 'INSERT'), false)
    AND coalesce(has_table_privilege(to_regclass('umavez_events'), 'DELETE'), false)
