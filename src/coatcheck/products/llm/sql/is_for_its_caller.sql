-- Whether only the synchronous caller can get a chat: with an idempotency key others may ask for it,
-- and a webhook is sent whether or not anybody waits. Uses the primary key of jobs.
--
-- $1 organisation   $2 job
SELECT j.idempotency_key IS NULL AND j.webhook IS NULL AS is_for_its_caller
FROM jobs AS j
WHERE j.org_id = $1 AND j.id = $2
