-- The jobs that hold any of these idempotency keys.
--
-- $1 org   $2 keys
SELECT /* include org_jobs/view_columns.sql */
FROM jobs AS j
WHERE j.org_id = $1 AND j.idempotency_key = ANY ($2::text[])
ORDER BY j.id DESC
