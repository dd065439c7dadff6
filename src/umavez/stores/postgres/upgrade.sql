-- From version 1 to 2, before schema.sql makes what is missing: the records get the seed's `id` and its lengths, and the
-- name of the seed's index goes to the index on the key's text. The table is copied under a lock; views on it stay.

ALTER INDEX IF EXISTS idx_idempotency_key RENAME TO idx_digest;
ALTER TABLE IF EXISTS idempotency_records
    ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ADD CONSTRAINT ck_lengths CHECK (
        char_length(scope) <= 255 AND char_length(operation_name) <= 255 AND char_length(idempotency_key) <= 255
        AND char_length(process_instance_id) <= 255 AND char_length(activity_id) <= 255
    );
