-- The runs of a batch with numbers below one, oldest first: the number of their tasks, how many of
-- these have their numbers as positions, and how many are new to the batch.
--
-- $1 org   $2 batch   $3 number
SELECT r.number, r.id, r.tasks, CASE r.number WHEN 1 THEN r.tasks ELSE r.mirrored END AS mirrored,
       CASE r.number WHEN 1 THEN r.tasks ELSE r.new_tasks END AS new_tasks
FROM runs AS r
WHERE r.org_id = $1 AND r.group_id = $2 AND r.number < $3
ORDER BY r.number
