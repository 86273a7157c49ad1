-- failed -> pending, for a part that another job now ingests from where it stopped. Its error stays
-- recorded until then. Sent again after its response was lost, it returns the same row.
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
