-- Assign another job to a pending part, if the part has not changed since the reconciler read it.
--
-- $1 org   $2 part   $3 the job before   $4 the job from now on
UPDATE batch_parts AS p
SET ingest_job = $4, redrives = p.redrives + 1, updated_at = now()
FROM runs AS r
WHERE p.org_id = $1 AND p.id = $2 AND p.state = 'pending'
  AND p.ingest_job IS NOT DISTINCT FROM $3::uuid
  AND r.org_id = p.org_id AND r.id = p.run_id AND r.cancel_requested_at IS NULL
RETURNING p.id
