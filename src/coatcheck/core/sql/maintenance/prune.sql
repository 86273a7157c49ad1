-- Delete jobs whose retention has ended, a small chunk at a time, with all their rows, and open the
-- records of their artifacts. Products add deletions from their own tables for the jobs in `old`, each
-- in a removed_with_jobs.sql (core/queries/maintenance.py). Returns how many jobs, with a row for each
-- blob of their artifacts, to be deleted next, or one row without a blob.
WITH old AS MATERIALIZED (
    SELECT j.org_id, j.id, j.webhook, j.owner, j.endpoint, j.flow
    FROM jobs AS j
    WHERE j.expires_at < 'infinity' AND j.expires_at <= now()
    ORDER BY j.expires_at
    LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
),
jobs_gone AS (
    DELETE FROM jobs AS j USING old AS o WHERE j.org_id = o.org_id AND j.id = o.id RETURNING j.id
),
events_gone AS (
    DELETE FROM job_events AS e USING old AS o WHERE e.org_id = o.org_id AND e.job_id = o.id
),
webhooks_gone AS (
    DELETE FROM job_webhooks AS w USING old AS o
    WHERE o.webhook > 0 AND w.org_id = o.org_id AND w.job_id = o.id
),
remote_calls_gone AS (
    DELETE FROM remote_calls AS c USING old AS o WHERE c.org_id = o.org_id AND c.job_id = o.id
),
/* removed with jobs */
gone AS (
    DELETE FROM artifacts AS a USING old AS o WHERE a.org_id = o.org_id AND a.job_id = o.id
    RETURNING a.*, o.owner, o.endpoint, o.flow, NULL::timestamptz AS deleted_at,
              'retention' AS mechanism
),
doomed AS (
    /* include artifacts/open_records.sql */
)
SELECT n.jobs, d.org_id, d.job_id, d.seq, d.blob_key
FROM (SELECT count(*) AS jobs FROM jobs_gone) AS n
LEFT JOIN doomed AS d ON true
