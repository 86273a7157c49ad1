-- Record that the synchronous caller of a chat left, so that a retry may join it. Uses the primary key
-- of jobs.
--
-- Not a job with an idempotency key: the key leads to it, and others may wait for it. Not a job with a
-- webhook, whose receiver is part of the request. Not a job that has completed meanwhile: its payload
-- was deleted at its end, so nothing can show whether a retry asks the same.
--
-- Returns a row if the chat can be joined.
--
-- $1 organisation   $2 job
INSERT INTO llm_abandoned (org_id, job_id, owner, digest)
SELECT j.org_id, j.id, j.owner, sha256(j.payload)
FROM jobs AS j
WHERE j.org_id = $1 AND j.id = $2 AND j.payload IS NOT NULL AND j.idempotency_key IS NULL
  AND j.webhook IS NULL
ON CONFLICT (org_id, job_id) DO UPDATE SET left_at = now()
RETURNING job_id
