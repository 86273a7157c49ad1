-- jobs/submit.sql, where some of the jobs are to be told of: with who is told, in one statement.
--
-- $1-$12 as in jobs/submit.sql
WITH created AS (
    /* include jobs/submit.sql */
),
bound AS (
    /* include webhooks/bind.sql */
),
named AS (
    /* include webhooks/named.sql */
),
enlisted AS (
    /* include webhooks/enlist.sql */
)
SELECT c.id, c.staged FROM created AS c
