-- Whether a chat is for nobody but the caller who waits for it: others may come by its idempotency
-- key, and its webhook is told whoever waits. By the primary key of jobs.
--
-- $1 organisation   $2 job
SELECT j.idempotency_key IS NULL AND j.webhook IS NULL AS is_for_its_caller
FROM jobs AS j
WHERE j.org_id = $1 AND j.id = $2
