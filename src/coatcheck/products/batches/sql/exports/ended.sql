-- A chunk of a run's tasks that ended in one state, in order: one range of jobs_run_ended. At most $5
-- rows, and no more rows after the results have $6 bytes. The length of a result is known without
-- reading the result.
--
-- $1 org   $2 run   $3 state   $4 after this number   $5 rows at most   $6 bytes
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
          AND state = $3::text::job_state AND task_index > $4::integer
        ORDER BY task_index
        LIMIT $5
    ) AS j
) AS chunk
WHERE coalesce(chunk.bytes_before, 0) < $6::bigint
ORDER BY chunk.task_index
