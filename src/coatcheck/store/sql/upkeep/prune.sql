-- Delete jobs whose retention has ended, a small chunk at a time, with all they left. Answers the
-- keys of their artifacts' blobs, to be deleted next.
WITH old AS MATERIALIZED (
    SELECT j.org_id, j.id, j.webhook
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
    WHERE o.webhook IS NOT NULL AND w.org_id = o.org_id AND w.job_id = o.id
),
assignments_gone AS (
    DELETE FROM llm_assignments AS a USING old AS o WHERE a.org_id = o.org_id AND a.job_id = o.id
),
artifacts_gone AS (
    DELETE FROM artifacts AS a USING old AS o WHERE a.org_id = o.org_id AND a.job_id = o.id
    RETURNING a.blob_key
)
SELECT (SELECT count(*) FROM jobs_gone) AS jobs, array(SELECT blob_key FROM artifacts_gone) AS blob_keys
