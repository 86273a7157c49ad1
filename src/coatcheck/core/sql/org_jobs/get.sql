-- A job for the people who manage it: with its result unless that is long; for a task also with its
-- group, and with what its caller called. No group while that is being removed.
--
-- $1 org   $2 id   $3 bytes that a result may have
SELECT /* include org_jobs/view_columns.sql */,
       CASE WHEN octet_length(j.result) <= $3::integer THEN j.result END AS shown_result,
       run.group_id, run.service, run.service_endpoint
FROM jobs AS j
LEFT JOIN runs AS run
    ON run.org_id = j.org_id AND run.id = j.run_id AND run.removed_at IS NULL
WHERE j.org_id = $1 AND j.id = $2
