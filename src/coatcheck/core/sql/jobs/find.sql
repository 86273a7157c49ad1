-- The job that holds an idempotency key: the answer to a repeated POST before its body is read.
SELECT /* include jobs/view_columns.sql */, j.result
FROM jobs AS j
WHERE j.org_id = $1 AND j.idempotency_key = $2
