-- What those who manage jobs see of one, besides what every reader does: in the order of OrgJob.
-- Included by the statements here. A long result is left out: its length says so.
--
-- The retry of a job is looked for only where there can be one.
/* include jobs/view_columns.sql */, NULL::bytea AS result,
       j.run_id, j.task_index, j.payload IS NOT NULL AS input_kept, j.retry_of,
       CASE WHEN j.state IN ('failed', 'cancelled') THEN (
           SELECT r.id
           FROM jobs AS r
           WHERE r.org_id = j.org_id AND r.retry_of = j.id
           ORDER BY r.id DESC
           LIMIT 1
       ) END AS retried_as,
       j.traceparent
