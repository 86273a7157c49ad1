-- Lock the run of a failed part, as every change of a run's parts and tasks does. No row if the run
-- was cancelled. Also finds a part that this job was assigned to before, for a repeat.
--
-- $1 org   $2 part   $3 the batch's owner, or NULL for any   $4 the job
SELECT r.id
FROM batch_parts AS p
JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id AND b.deleted_at IS NULL
JOIN runs AS r ON r.org_id = p.org_id AND r.id = p.run_id
WHERE p.org_id = $1 AND p.id = $2 AND (p.state = 'failed' OR p.ingest_job = $4)
  AND r.cancel_requested_at IS NULL AND ($3::text IS NULL OR b.owner = $3)
FOR UPDATE OF r
