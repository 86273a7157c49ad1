-- name: earlier_runs
-- The runs of a batch with numbers below one, oldest first: the number of their tasks, how many of
-- these have their numbers as positions, and how many are new to the batch.
--
-- $1 org   $2 batch   $3 number
SELECT r.number, r.id, r.tasks, CASE r.number WHEN 1 THEN r.tasks ELSE r.mirrored END AS mirrored,
       CASE r.number WHEN 1 THEN r.tasks ELSE r.new_tasks END AS new_tasks
FROM runs AS r
WHERE r.org_id = $1 AND r.group_id = $2 AND r.number < $3
ORDER BY r.number

-- name: latest
-- The newest row of each position, of runs with numbers below one: one read each, at the end of a
-- range of the primary key. A position without a row belongs to a run that mirrors it.
--
-- $1 org   $2 batch   $3 positions   $4 run numbers below this
SELECT t.position, newest.run_number, newest.run_id, newest.task_index
FROM unnest($3::integer[]) AS t (position)
CROSS JOIN LATERAL (
    SELECT p.run_number, p.run_id, p.task_index
    FROM batch_positions AS p
    WHERE p.org_id = $1 AND p.batch_id = $2 AND p.position = t.position AND p.run_number < $4
    ORDER BY p.run_number DESC
    LIMIT 1
) AS newest

-- name: of_tasks
-- The positions of a run's tasks, in the order of these numbers. The position of a task without a row
-- is its number.
--
-- $1 org   $2 run   $3 numbers
SELECT coalesce(p.position, t.number) AS position
FROM unnest($3::integer[]) WITH ORDINALITY AS t (number, place)
LEFT JOIN batch_positions AS p ON p.org_id = $1 AND p.run_id = $2 AND p.task_index = t.number
ORDER BY t.place
