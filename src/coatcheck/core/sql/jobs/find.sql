-- The job that holds an idempotency key: what a re-POST is answered with before its body is read.
SELECT /* include jobs/view_columns.sql */, j.result
FROM jobs AS j
WHERE j.org_id = $1 AND j.idempotency_key = $2
