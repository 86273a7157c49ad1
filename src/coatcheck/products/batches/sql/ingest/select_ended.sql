-- The next tasks of a run that ended in one way, with one of some error codes: their numbers.
--
-- $1 org   $2 run   $3 state   $4 error codes, or NULL   $5 from which number on   $6 how many
SELECT j.task_index
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.run_id IS NOT NULL
  AND j.state IN ('completed', 'failed', 'cancelled')
  AND j.state = $3::text::job_state AND j.task_index >= $5::integer
  AND ($4::text[] IS NULL OR j.error_code = ANY ($4))
ORDER BY j.task_index
LIMIT $6::integer
