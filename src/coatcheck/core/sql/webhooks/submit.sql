-- jobs/submit.sql for jobs of which some have webhooks: writes those in the same statement.
--
-- $1-$12 as in jobs/submit.sql
WITH created AS (
    /* include jobs/submit.sql */
),
bound AS (
    /* include webhooks/add_job_webhooks.sql */
),
named AS (
    /* include webhooks/submitted_targets.sql */
),
enlisted AS (
    /* include webhooks/target_upsert.sql */
)
SELECT c.id, c.staged FROM created AS c
