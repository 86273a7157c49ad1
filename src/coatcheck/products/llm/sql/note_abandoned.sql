-- The synchronous caller of a chat has gone: a retry may join it. By the primary key of jobs.
--
-- Not a job with an idempotency key, which leads to it by itself, and whom others may wait for. Not one
-- with a webhook, whose receiver is a part of the request. Not one that has completed meanwhile: what
-- was asked is gone with its end, and nobody can tell whether a retry asks the same.
--
-- A row if it can be joined.
--
-- $1 organisation   $2 job
INSERT INTO llm_abandoned (org_id, job_id, owner, digest)
SELECT j.org_id, j.id, j.owner, sha256(j.payload)
FROM jobs AS j
WHERE j.org_id = $1 AND j.id = $2 AND j.payload IS NOT NULL AND j.idempotency_key IS NULL
  AND j.webhook IS NULL
ON CONFLICT (org_id, job_id) DO UPDATE SET left_at = now()
RETURNING job_id
