-- Whether a run has a task that ended in one of these states, with one of these error codes.
--
-- $1 org   $2 run   $3 states   $4 error codes, or NULL
SELECT EXISTS (
    SELECT
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $2 AND j.run_id IS NOT NULL
      AND j.state IN ('completed', 'failed', 'cancelled')
      AND j.state = ANY ($3::text[]::job_state[])
      AND ($4::text[] IS NULL OR j.error_code = ANY ($4))
)
