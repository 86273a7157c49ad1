-- A run's tasks that ended in one state, in order, and which of them are the latest of their position.
-- Scans a limited part of one range of jobs_run_ended, however few of its tasks are the latest.
--
-- $1 org   $2 batch   $3 run   $4-$6 as in is_latest.sql   $7 state   $8 error codes, or NULL
-- $9 after this number   $10 tasks to scan
SELECT seen.task_index, seen.is_wanted AND /* include tasks/is_latest.sql */ AS is_latest
FROM (
    SELECT j.task_index, $8::text[] IS NULL OR coalesce(j.error_code = ANY ($8), false) AS is_wanted
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $3 AND j.state IN ('completed', 'failed', 'cancelled')
      AND j.state = $7::text::job_state AND j.task_index > $9::integer
    ORDER BY j.task_index
    LIMIT $10
) AS seen
LEFT JOIN batch_positions AS own
    ON own.org_id = $1 AND own.run_id = $3 AND own.task_index = seen.task_index
ORDER BY seen.task_index
