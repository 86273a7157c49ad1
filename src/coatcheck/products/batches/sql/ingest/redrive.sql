-- Have a part that failed taken in after all, by another job, from where it stopped. What it failed of
-- stays written down until then. Sent again after its answer was lost, it answers the same.
--
-- $1 org   $2 part   $3 run   $4 the job
WITH was AS MATERIALIZED (
    SELECT p.id, p.state, p.updated_at
    FROM batch_parts AS p
    WHERE p.org_id = $1 AND p.id = $2 AND p.run_id = $3
      AND (p.state = 'failed' OR p.ingest_job = $4)
    FOR UPDATE
)
UPDATE batch_parts AS p
SET state = CASE w.state WHEN 'failed' THEN 'pending' ELSE w.state END,
    redrives = p.redrives + (w.state = 'failed')::integer, ingest_job = $4, updated_at = now()
FROM was AS w
WHERE p.org_id = $1 AND p.id = w.id
RETURNING p.id, p.batch_id, p.run_id, p.source, p.error_code, p.error_message, p.lines, p.tasks,
          p.redrives, p.created_at, w.updated_at
