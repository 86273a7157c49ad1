-- Delete a call that nobody checks and whose job has ended.
--
-- $1 org   $2 job
DELETE FROM remote_calls AS c
WHERE c.org_id = $1 AND c.job_id = $2 AND c.lease IS NULL
  AND NOT EXISTS (
      SELECT FROM jobs AS j
      WHERE j.org_id = c.org_id AND j.id = c.job_id
        AND j.state NOT IN ('completed', 'failed', 'cancelled')
  )
