-- The columns of a task in a page, in the order of TaskView. Long results are left out, with their
-- length; inputs are left out, because callers have them.
--
-- $1 org   $2 run   $3 bytes that a result in a page may have
j.id, j.task_index, j.custom_id, j.state::text AS state,
       j.failures + j.crashes
           + CASE WHEN j.lease IS NOT NULL OR j.state = 'completed' THEN 1 ELSE 0 END AS attempts,
       j.error_code, j.error_message,
       CASE WHEN octet_length(j.result) <= $3::integer THEN j.result END AS result,
       NULL::bytea AS input, j.created_at, j.started_at, j.finished_at, j.run_id,
       octet_length(j.result) AS result_bytes,
       /* include tasks/position.sql */ AS position
