-- Whether numbers can be kept here: their table may not be there yet, or not be this account's to write.
SELECT
    coalesce(has_table_privilege(to_regclass('umavez_minutes'), 'SELECT'), false)
    AND coalesce(has_table_privilege(to_regclass('umavez_minutes'), 'INSERT'), false)
    AND coalesce(has_table_privilege(to_regclass('umavez_minutes'), 'UPDATE'), false)
    AND coalesce(has_table_privilege(to_regclass('umavez_minutes'), 'DELETE'), false)
