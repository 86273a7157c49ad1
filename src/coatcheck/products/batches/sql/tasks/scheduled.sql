-- A run's tasks that wait for a time to start or to be retried, in order: one range of
-- jobs_run_postponed.
--
-- $1-$3 as in view_columns.sql   $4 after this number   $5 rows at most
SELECT /* include tasks/view_columns.sql */
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.state IN ('staged', 'retrying')
  AND j.task_index > $4::integer
ORDER BY j.task_index
LIMIT $5
