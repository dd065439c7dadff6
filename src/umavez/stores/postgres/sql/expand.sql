-- From version 1 to 2, first part: what the new version needs is there, and the old one does not notice. Nothing is read
-- or copied, so the table is locked for a moment only. Safe to repeat.
DO $$
BEGIN
    IF to_regclass('idx_digest') IS NULL THEN
        ALTER INDEX idx_idempotency_key RENAME TO idx_digest;
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = 'idempotency_records'::regclass AND attname = 'id' AND NOT attisdropped
    ) THEN
        CREATE SEQUENCE umavez_first_ids;
        -- Whoever writes records may be another account than the one that migrates.
        GRANT USAGE ON SEQUENCE umavez_first_ids TO PUBLIC;
        ALTER TABLE idempotency_records
            ADD COLUMN id bigint,
            ADD CONSTRAINT ck_lengths CHECK (
                char_length(scope) <= 255 AND char_length(operation_name) <= 255 AND char_length(idempotency_key) <= 255
                AND char_length(process_instance_id) <= 255 AND char_length(activity_id) <= 255
            ) NOT VALID;
        ALTER TABLE idempotency_records ALTER COLUMN id SET DEFAULT nextval('umavez_first_ids');
    END IF;
END
$$
