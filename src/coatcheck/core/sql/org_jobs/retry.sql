-- Retry a job. Returns the state of the old one, no row if there is none, and whether the new one was
-- created.
--
-- $1-$8 see retry_created.sql
WITH /* include org_jobs/retry_created.sql */
SELECT o.state::text AS state, o.payload IS NOT NULL AS input_kept,
       EXISTS (SELECT FROM created) AS created
FROM old_job AS o
