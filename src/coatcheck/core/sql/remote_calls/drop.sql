-- Delete a call whose job has ended, fenced by its lease. If another worker is to spawn the work anew,
-- the row stays and keeps the number of the spawn.
--
-- $1 org   $2 job   $3 lease
WITH ended AS MATERIALIZED (
    SELECT c.org_id, c.job_id,
           NOT EXISTS (
               SELECT FROM jobs AS j
               WHERE j.org_id = c.org_id AND j.id = c.job_id
                 AND j.state NOT IN ('completed', 'failed', 'cancelled')
           ) AS is_over
    FROM remote_calls AS c
    WHERE c.org_id = $1 AND c.job_id = $2 AND c.lease = $3
    FOR UPDATE
),
idle AS (
    UPDATE remote_calls AS c
    SET lease = NULL, due_at = NULL, looker = NULL
    FROM ended AS e
    WHERE c.org_id = e.org_id AND c.job_id = e.job_id AND NOT e.is_over
)
DELETE FROM remote_calls AS c USING ended AS e
WHERE c.org_id = e.org_id AND c.job_id = e.job_id AND e.is_over
