-- Tasks of a run by their numbers, which ended in one state, with the columns of ended.sql: one range
-- of jobs_run_ended, or single keys of it.
--
-- $1 org   $2 run   $3 state   $4 numbers   $5 bytes
SELECT /* include exports/task_columns.sql */
FROM (
    SELECT j.id, j.run_id, j.task_index, j.custom_id, j.finished_at, j.result, j.error_code, j.error_message,
           j.failures + j.crashes + CASE WHEN j.state = 'completed' THEN 1 ELSE 0 END AS attempts,
           sum(octet_length(j.result)) OVER (
               ORDER BY j.task_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS bytes_before
    FROM (
        SELECT *
        FROM jobs
        WHERE org_id = $1 AND run_id = $2 AND state IN ('completed', 'failed', 'cancelled')
          AND state = $3::text::job_state AND task_index = ANY ($4::integer[])
        ORDER BY task_index
    ) AS j
) AS chunk
WHERE coalesce(chunk.bytes_before, 0) < $5::bigint
ORDER BY chunk.task_index
