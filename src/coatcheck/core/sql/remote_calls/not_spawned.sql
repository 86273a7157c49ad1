-- Take back that work was about to be spawned: it is certain that nobody took it, this time. Fenced by
-- the lease that began it, so said twice it counts once; earlier times, which may have been made, stay.
--
-- $1 org   $2 job   $3 lease
UPDATE remote_calls AS c
SET tries = c.tries - 1, begun_by = 0
WHERE c.org_id = $1 AND c.job_id = $2 AND c.begun_by = $3 AND c.remote_id IS NULL
RETURNING c.job_id
