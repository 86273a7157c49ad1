-- The batch that prevented an insert: it has the same id (our own statement, sent twice), or the same
-- idempotency key.
SELECT b.id, b.fingerprint
FROM batches AS b
WHERE b.org_id = $1 AND b.id = $2
UNION ALL
SELECT b.id, b.fingerprint
FROM batches AS b
WHERE b.org_id = $1 AND b.idempotency_key = $3
LIMIT 1
