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
