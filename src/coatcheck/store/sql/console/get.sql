-- A job for whoever looks after it: with its result unless that is long, and for a task with the
-- batch that it is of.
--
-- $1 org   $2 id   $3 bytes that a result may have
SELECT /* include console/view_columns.sql */,
       CASE WHEN octet_length(j.result) <= $3::integer THEN j.result END AS shown_result,
       b.id AS batch_id, b.service AS batch_service, b.service_endpoint AS batch_endpoint
FROM jobs AS j
LEFT JOIN batch_runs AS run ON run.org_id = j.org_id AND run.id = j.run_id
LEFT JOIN batches AS b ON b.org_id = run.org_id AND b.id = run.batch_id AND b.deleted_at IS NULL
WHERE j.org_id = $1 AND j.id = $2
