-- submit.sql with its notification in the same transaction: see submit_plain_and_notify.sql.
--
-- $13 channel   $14 payload
WITH created AS (
    /* include jobs/submit.sql */
)
SELECT c.id, c.staged, notified.ok
FROM created AS c
CROSS JOIN (SELECT pg_notify($13::text, $14::text) IS NULL AS ok) AS notified
