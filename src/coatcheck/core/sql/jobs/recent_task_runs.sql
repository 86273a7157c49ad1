-- How long the last completed tasks of a run ran, those with the highest numbers.
--
-- $1 org   $2 run   $3 rows at most
SELECT date_part('epoch', j.finished_at - j.started_at) AS seconds
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.state = 'completed'
ORDER BY j.task_index DESC
LIMIT $3::integer
