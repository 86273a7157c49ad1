-- The page of the `walked` jobs: included by the statements that walk.
page AS MATERIALIZED (
    SELECT w.id FROM walked AS w WHERE w.fits ORDER BY w.id DESC LIMIT $17
)
SELECT progress.walked_rows, progress.walked_to, /* include org_jobs/view_columns.sql */
FROM (
    SELECT count(*) AS walked_rows,
           (SELECT w.id FROM walked AS w ORDER BY w.id LIMIT 1) AS walked_to
    FROM walked
) AS progress
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = $1 AND j.id = p.id) AS j ON true
ORDER BY j.id DESC
