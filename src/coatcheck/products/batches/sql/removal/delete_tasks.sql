-- Delete the last tasks of a run with everything that belongs to them, and record how many tasks the
-- run still has, so that the next step knows where to continue. Their blobs were deleted before; the
-- records of their artifacts say so from this commit on.
--
-- $1 org   $2 run   $3 ids   $4 tasks before   $5 tasks after
WITH moved AS MATERIALIZED (
    UPDATE runs SET tasks = $5::integer
    WHERE org_id = $1 AND id = $2 AND tasks = $4::integer
    RETURNING org_id
),
old AS MATERIALIZED (
    SELECT m.org_id, t.id FROM moved AS m CROSS JOIN unnest($3::uuid[]) AS t (id)
),
jobs_gone AS (
    DELETE FROM jobs AS j USING old AS o WHERE j.org_id = o.org_id AND j.id = o.id
    RETURNING j.org_id, j.id, j.owner, j.endpoint
),
events_gone AS (
    DELETE FROM job_events AS e USING old AS o WHERE e.org_id = o.org_id AND e.job_id = o.id
),
positions_gone AS (
    DELETE FROM batch_positions AS p USING moved AS m
    WHERE p.org_id = m.org_id AND p.run_id = $2 AND p.task_index >= $5 AND p.task_index < $4
),
remote_calls_gone AS (
    DELETE FROM remote_calls AS c USING old AS o WHERE c.org_id = o.org_id AND c.job_id = o.id
),
artifacts_gone AS (
    DELETE FROM artifacts AS a USING old AS o WHERE a.org_id = o.org_id AND a.job_id = o.id
    RETURNING a.*
),
gone AS (
    SELECT a.*, j.owner, j.endpoint, '' AS flow, now() AS deleted_at, 'batch_removed' AS mechanism
    FROM artifacts_gone AS a JOIN jobs_gone AS j ON j.org_id = a.org_id AND j.id = a.job_id
),
recorded AS (
    /* include coatcheck.core:artifacts/open_records.sql */
)
SELECT count(*) AS tasks FROM jobs_gone
