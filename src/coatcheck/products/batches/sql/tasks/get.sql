-- One task of a batch, of any run, with its payload, and its result unless that is long:
-- jobs/result.sql reads long results.
--
-- $1 org   $2 batch   $3 id   $4 bytes that a result may have
SELECT j.id, j.task_index, j.custom_id, j.state::text AS state,
       j.failures + j.crashes
           + CASE WHEN j.lease IS NOT NULL OR j.state = 'completed' THEN 1 ELSE 0 END AS attempts,
       j.error_code, j.error_message,
       CASE WHEN octet_length(j.result) <= $4::integer THEN j.result END AS result,
       j.payload AS input, j.created_at, j.started_at, j.finished_at, j.run_id, octet_length(j.result) AS result_bytes,
       /* include tasks/position.sql */ AS position
FROM jobs AS j
JOIN runs AS r ON r.org_id = j.org_id AND r.id = j.run_id AND r.group_id = $2
WHERE j.org_id = $1 AND j.id = $3
