-- A run's running tasks, in order: jobs_run_held. Reads all of them, at most as many as there are
-- slots. By their states and not by their leases, for which the planner would take jobs_held instead.
--
-- $1-$3 as in view_columns.sql   $4 after this number   $5 rows at most
SELECT /* include tasks/view_columns.sql */
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.task_index > $4::integer
  AND j.state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested')
ORDER BY j.task_index
LIMIT $5
