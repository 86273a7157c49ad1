-- The runs of a batch up to one of them, newest first, in the order of ExportRun: an export of the
-- whole batch reads their tasks.
--
-- $1 org   $2 batch   $3 number of the last run
SELECT r.id, r.number, CASE r.number WHEN 1 THEN r.tasks ELSE r.mirrored END AS mirrored, r.tasks,
       CASE r.number WHEN 1 THEN r.tasks ELSE r.new_tasks END AS new_tasks, r.completed_at,
       r.succeeded - r.replaced_succeeded, r.failed - r.replaced_failed,
       r.cancelled - r.replaced_cancelled
FROM runs AS r
WHERE r.org_id = $1 AND r.group_id = $2 AND r.number <= $3
ORDER BY r.number DESC
