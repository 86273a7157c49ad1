-- The positions of a run's tasks, in the order of these numbers. The position of a task without a row
-- is its number.
--
-- $1 org   $2 run   $3 numbers
SELECT coalesce(p.position, t.number) AS position
FROM unnest($3::integer[]) WITH ORDINALITY AS t (number, place)
LEFT JOIN batch_positions AS p ON p.org_id = $1 AND p.run_id = $2 AND p.task_index = t.number
ORDER BY t.place
