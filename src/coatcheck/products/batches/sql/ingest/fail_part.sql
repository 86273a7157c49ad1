-- pending -> failed, for a part whose ingest failed. It waits for a redrive, a rerun or a DELETE. The
-- tasks that were ingested before stay, and run.
--
-- $1 org   $2 part   $3 error code   $4 message   $5 the part's job, or NULL: a part that was assigned
-- to another job since is left to that one
UPDATE batch_parts AS p
SET state = 'failed', error_code = $3, error_message = $4, updated_at = now()
WHERE p.org_id = $1 AND p.id = $2 AND p.state = 'pending'
  AND ($5::uuid IS NULL OR p.ingest_job = $5)
RETURNING p.batch_id
