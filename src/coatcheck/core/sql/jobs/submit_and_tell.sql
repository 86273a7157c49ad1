-- submit.sql, and the notification of it in the same transaction: see submit_plain_and_tell.sql.
--
-- $13 channel   $14 what is said
WITH created AS (
    /* include jobs/submit.sql */
)
SELECT c.id, c.staged, told.ok
FROM created AS c
CROSS JOIN (SELECT pg_notify($13::text, $14::text) IS NULL AS ok) AS told
