-- Remove the limits of one run, and their tokens.
--
-- $1 organisation, $2 run
WITH ended (org_id, run_id) AS (SELECT $1::text COLLATE "C", $2::uuid),
/* include limits/clear_run.sql */
SELECT FROM ended
