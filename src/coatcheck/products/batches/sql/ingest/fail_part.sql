-- A part cannot be taken in: it waits for a redrive, a rerun or a DELETE. What was taken in of it
-- before stays, and runs.
--
-- $1 org   $2 part   $3 error code   $4 message   $5 the job that was to take it in, as far as known:
-- one that was given to another since is left to that
UPDATE batch_parts AS p
SET state = 'failed', error_code = $3, error_message = $4, updated_at = now()
WHERE p.org_id = $1 AND p.id = $2 AND p.state = 'pending'
  AND ($5::uuid IS NULL OR p.ingest_job = $5)
RETURNING p.batch_id
