-- Delete an artifact of a job that has ended, on request, and open its record. Returns the blob to
-- delete. No row: there is no such artifact, or the job has not ended and may attach another of the
-- same name.
--
-- $1 org   $2 job   $3 name
WITH ended AS MATERIALIZED (
    SELECT j.org_id, j.id, j.owner, j.endpoint, CASE WHEN j.run_id IS NULL THEN j.flow ELSE '' END AS flow
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2 AND j.finished_at IS NOT NULL
    FOR SHARE
),
gone AS (
    DELETE FROM artifacts AS a USING ended AS e
    WHERE a.org_id = e.org_id AND a.job_id = e.id AND a.name = $3
    RETURNING a.*, e.owner, e.endpoint, e.flow, NULL::timestamptz AS deleted_at, 'owner' AS mechanism
)
/* include artifacts/open_records.sql */
