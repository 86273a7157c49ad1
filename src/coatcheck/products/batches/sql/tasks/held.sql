-- A run's tasks that somebody runs now, in order. All of them are read, which are as many as there
-- are slots for them. By their states and not by their leases: there is another index on these.
--
-- $1-$3 as in view_columns.sql   $4 after this number   $5 rows at most
SELECT /* include tasks/view_columns.sql */
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.task_index > $4::integer
  AND j.state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested')
ORDER BY j.task_index
LIMIT $5
