-- Undo begin.sql: the remote certainly did not accept the work, this time. Fenced by the lease that
-- began it, so repeated it counts once; earlier tries, which may have been accepted, stay.
--
-- $1 org   $2 job   $3 lease
UPDATE remote_calls AS c
SET tries = c.tries - 1, begun_by = 0
WHERE c.org_id = $1 AND c.job_id = $2 AND c.begun_by = $3 AND c.remote_id IS NULL
RETURNING c.job_id
