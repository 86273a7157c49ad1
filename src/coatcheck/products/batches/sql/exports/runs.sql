-- The runs of a batch that an export of all of them is made of, the newest first: as of one, in the
-- order of ExportRun.
--
-- $1 org   $2 batch   $3 that one's number
SELECT r.id, r.number, CASE r.number WHEN 1 THEN r.tasks ELSE r.mirrored END AS mirrored, r.tasks,
       CASE r.number WHEN 1 THEN r.tasks ELSE r.new_tasks END AS new_tasks, r.completed_at,
       r.succeeded - r.replaced_succeeded, r.failed - r.replaced_failed,
       r.cancelled - r.replaced_cancelled
FROM runs AS r
WHERE r.org_id = $1 AND r.group_id = $2 AND r.number <= $3
ORDER BY r.number DESC
