-- A target is reachable again: make the jobs that wait for a target due now, some at a time.
-- maintenance/due_jobs.py queues them. All such jobs, because a job has no target until it is claimed.
--
-- $1 endpoints   $2 jobs at most
WITH waiting AS MATERIALIZED (
    SELECT j.org_id, j.id
    FROM jobs AS j
    WHERE j.state = 'retrying' AND j.error_code = 'target_unreachable'
      AND j.endpoint = ANY ($1::text[]) AND j.run_at > now()
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs AS j
SET run_at = now(), updated_at = now()
FROM waiting AS w
WHERE j.org_id = w.org_id AND j.id = w.id
RETURNING j.id
