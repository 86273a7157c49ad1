-- Counts of a run's failed tasks by error code, most frequent first. Reads one range of jobs_run_ended,
-- in the order of the tasks' numbers, up to a limit: a run of millions costs no more than one of
-- thousands.
--
-- $1 org   $2 run   $3 tasks at most   $4 codes at most
SELECT f.error_code AS code, count(*) AS tasks, sum(count(*)) OVER () AS counted
FROM (
    SELECT coalesce(j.error_code, '') AS error_code
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $2 AND j.state IN ('completed', 'failed', 'cancelled')
      AND j.state = 'failed'
    ORDER BY j.task_index
    LIMIT $3
) AS f
GROUP BY f.error_code
ORDER BY tasks DESC, code
LIMIT $4
