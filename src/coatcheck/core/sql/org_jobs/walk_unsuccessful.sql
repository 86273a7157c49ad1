-- As walk.sql, for jobs that failed or were cancelled: along their own index, so that completed jobs are
-- not walked.
--
-- Parameters as in walk.sql
WITH walked AS MATERIALIZED (
    SELECT j.id, (/* include org_jobs/filter.sql */) AS fits
    FROM jobs AS j
    WHERE j.state IN ('failed', 'cancelled') AND j.run_id IS NULL
      AND j.org_id = $1 AND j.id < $2::uuid AND j.id >= $3::uuid
    ORDER BY j.id DESC
    LIMIT $16
),
/* include org_jobs/page.sql */
