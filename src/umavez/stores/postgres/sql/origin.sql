-- Where the last claim under the digest $1 came from that said so.
SELECT origin FROM idempotency_records WHERE digest = $1::bytea
