-- Whether the job still waits for a spawn.
--
-- $1 org   $2 job   $3 spawn
SELECT EXISTS (
    SELECT FROM remote_calls AS c
    WHERE c.org_id = $1 AND c.job_id = $2 AND c.spawn = $3 AND c.lease IS NOT NULL
) AS is_open
