-- Record the id that a callback gives the work, while it is unknown.
--
-- $1 org   $2 job   $3 spawn   $4 id
UPDATE remote_calls AS c
SET told_id = $4
WHERE c.org_id = $1 AND c.job_id = $2 AND c.spawn = $3 AND c.remote_id IS NULL
RETURNING c.job_id
