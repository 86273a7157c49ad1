-- Whether a run has a task that is the latest of its position, ended in one of these states, and has
-- one of these error codes.
--
-- $1 org   $2 batch   $3 run   $4-$6 as in tasks/is_latest.sql   $7 states   $8 error codes, or NULL
SELECT EXISTS (
    SELECT
    FROM jobs AS seen
    LEFT JOIN batch_positions AS own
        ON own.org_id = $1 AND own.run_id = $3 AND own.task_index = seen.task_index
    WHERE seen.org_id = $1 AND seen.run_id = $3 AND seen.run_id IS NOT NULL
      AND seen.state IN ('completed', 'failed', 'cancelled')
      AND seen.state = ANY ($7::text[]::job_state[])
      AND ($8::text[] IS NULL OR seen.error_code = ANY ($8))
      AND /* include tasks/is_latest.sql */
)
