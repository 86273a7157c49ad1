-- The batch that holds an idempotency key.
SELECT b.id, b.fingerprint FROM batches AS b WHERE b.org_id = $1 AND b.idempotency_key = $2
