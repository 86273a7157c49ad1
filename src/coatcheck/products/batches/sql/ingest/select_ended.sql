-- The numbers of a run's next tasks that ended in one state, with one of some error codes.
--
-- $1 org   $2 run   $3 state   $4 error codes, or NULL   $5 first number   $6 how many
SELECT j.task_index
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.run_id IS NOT NULL
  AND j.state IN ('completed', 'failed', 'cancelled')
  AND j.state = $3::text::job_state AND j.task_index >= $5::integer
  AND ($4::text[] IS NULL OR j.error_code = ANY ($4))
ORDER BY j.task_index
LIMIT $6::integer
