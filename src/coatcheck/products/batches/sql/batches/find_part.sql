-- The part of a batch that prevented an insert: it has the same id (our own statement, sent twice), or
-- the same idempotency key.   $1 org   $2 batch   $3 idempotency key   $4 part
SELECT p.id, p.run_id, p.fingerprint
FROM batch_parts AS p
WHERE p.org_id = $1 AND p.id = $4::uuid
UNION ALL
SELECT p.id, p.run_id, p.fingerprint
FROM batch_parts AS p
WHERE p.org_id = $1 AND p.batch_id = $2 AND p.idempotency_key = $3
LIMIT 1
