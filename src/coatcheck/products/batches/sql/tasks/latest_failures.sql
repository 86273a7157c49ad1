-- Counts by error code of a run's failed tasks that are the latest of their position, as failures.sql,
-- and how many tasks were scanned.
--
-- $1 org   $2 batch   $3 run   $4-$6 as in is_latest.sql   $7 tasks to scan
SELECT seen.error_code AS code,
       count(*) FILTER (WHERE /* include tasks/is_latest.sql */) AS tasks,
       count(*) AS seen
FROM (
    SELECT j.task_index, coalesce(j.error_code, '') AS error_code
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $3 AND j.state IN ('completed', 'failed', 'cancelled')
      AND j.state = 'failed'
    ORDER BY j.task_index
    LIMIT $7
) AS seen
LEFT JOIN batch_positions AS own
    ON own.org_id = $1 AND own.run_id = $3 AND own.task_index = seen.task_index
GROUP BY seen.error_code
