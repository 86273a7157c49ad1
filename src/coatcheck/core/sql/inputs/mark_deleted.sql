-- Record that blobs are deleted, and by what. With the blob of an ended job its pointer's row is
-- closed: the statement that ended the job removed the pointer itself. Returns the jobs of closed rows.
WITH gone AS MATERIALIZED (
    SELECT g.org_id, g.job_id, g.place, g.mechanism, j.id IS NULL AS job_gone, j.finished_at
    FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[])
        AS g (org_id, job_id, place, mechanism)
    LEFT JOIN jobs AS j ON j.org_id = g.org_id AND j.id = g.job_id
),
blobs AS (
    UPDATE input_copies AS c
    SET deleted_at = now(), mechanism = g.mechanism
    FROM gone AS g
    WHERE c.org_id = g.org_id AND c.job_id = g.job_id AND c.layer = 'blob' AND c.place = g.place
      AND c.deleted_at IS NULL
    RETURNING c.job_id
),
pointers AS (
    UPDATE input_copies AS c
    SET deleted_at = coalesce(g.finished_at, now()), mechanism = 'end_of_job'
    FROM gone AS g
    WHERE c.org_id = g.org_id AND c.job_id = g.job_id AND c.layer = 'database'
      AND c.deleted_at IS NULL AND (g.job_gone OR g.finished_at IS NOT NULL)
)
SELECT b.job_id FROM blobs AS b
