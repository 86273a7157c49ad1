-- Stop claims of a run. Its rates stay until it ends.
--
-- $1 organisation, $2 run
INSERT INTO run_limits (org_id, run, held_max)
VALUES ($1, replace($2::uuid::text, '-', ''), 0)
ON CONFLICT (org_id, run) DO UPDATE SET held_max = 0
