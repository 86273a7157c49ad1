-- As walk.sql, for jobs that have not ended: by the indexes of live states, so that the history is not
-- walked. Looks at all of the organisation's live jobs, a bounded number of each kind; if there are
-- more, `walked_rows` is above $16, and the caller walks in order instead.
--
-- Tasks are read, too, and then left out: their groups have their own lists. IS TRUE keeps the planner
-- from the primary key, by which it would read the organisation's history.
--
-- Parameters as in walk.sql
WITH live AS MATERIALIZED (
    (
        SELECT j.id, j.run_id
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.lane IN ('urgent', 'standard', 'bulk') AND j.org_id = $1
        LIMIT $16 + 1
    )
    UNION ALL
    (
        SELECT j.id, j.run_id
        FROM jobs AS j
        WHERE j.state IN ('staged', 'retrying') AND j.org_id = $1
        LIMIT $16 + 1
    )
    UNION ALL
    (
        SELECT j.id, j.run_id
        FROM jobs AS j
        WHERE j.lease IS NOT NULL AND (j.org_id = $1) IS TRUE
        LIMIT $16 + 1
    )
),
walked AS MATERIALIZED (
    SELECT j.id, (/* include org_jobs/filter.sql */) AS fits
    FROM live AS l
    CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = $1 AND j.id = l.id) AS j
    WHERE l.run_id IS NULL AND l.id < $2::uuid AND l.id >= $3::uuid
      AND (SELECT count(*) FROM live) <= $16
),
page AS MATERIALIZED (
    SELECT w.id FROM walked AS w WHERE w.fits ORDER BY w.id DESC LIMIT $17
)
SELECT progress.walked_rows, NULL::uuid AS walked_to, /* include org_jobs/view_columns.sql */
FROM (SELECT count(*) AS walked_rows FROM live) AS progress
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = $1 AND j.id = p.id) AS j ON true
ORDER BY j.id DESC
