-- A user's tasks that changed after one snapshot and up to another, in the order of their generations,
-- as org_jobs/changes.sql does for an organisation. Scans the newest $8 tasks with the index
-- generations_of_user. Read under coatcheck_user.
--
-- $1 organisation   $2 user   $3 characters of each text   $4, $5 see jobs/horizon.sql
-- $6 after this generation   $7 limit   $8 tasks to scan
WITH horizon AS MATERIALIZED (
    /* include coatcheck.core:jobs/horizon.sql */
),
walked AS MATERIALIZED (
    SELECT newest.id, j.state, /* include coatcheck.core:jobs/row_transaction.sql */ AS written_by
    FROM horizon AS h, (
        SELECT g.org_id, g.id, g.job_id
        FROM generations AS g
        WHERE g.org_id = $1 AND g.user_id = $2
        ORDER BY g.id DESC
        LIMIT $8
    ) AS newest
    JOIN jobs AS j ON j.org_id = newest.org_id AND j.id = newest.job_id
),
page AS MATERIALIZED (
    SELECT w.id
    FROM walked AS w, horizon AS h
    WHERE w.id > $6::uuid AND /* include coatcheck.core:jobs/is_changed.sql */
    ORDER BY w.id
    LIMIT $7
)
SELECT h.seen::text AS seen, t.*
FROM horizon AS h
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (
    SELECT /* include task_columns.sql */
    FROM /* include task_joins.sql */
    WHERE g.org_id = $1 AND g.user_id = $2 AND g.id = p.id
) AS t ON true
ORDER BY t.generation_id
