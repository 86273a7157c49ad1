-- A run's tasks that ended in one state, in order: one range of jobs_run_ended. The states are listed
-- so that the predicate of the index holds for every $4.
--
-- $1-$3 as in view_columns.sql   $4 state   $5 after this number   $6 rows at most
SELECT /* include tasks/view_columns.sql */
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.state IN ('completed', 'failed', 'cancelled')
  AND j.state = $4::text::job_state AND j.task_index > $5::integer
ORDER BY j.task_index
LIMIT $6
