-- Record how many tasks are in the export so far. Fenced by the lease of the job that writes it.
--
-- $1 org   $2 export   $3 job   $4 lease   $5 tasks
UPDATE batch_exports AS e
SET tasks_written = $5
FROM jobs AS j
WHERE e.org_id = $1 AND e.id = $2 AND e.state = 'pending'
  AND j.org_id = e.org_id AND j.id = e.export_job AND j.id = $3 AND j.lease = $4
RETURNING e.id
