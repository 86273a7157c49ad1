-- Set or change the limits on all tasks of a run, from the next claim on.
--
-- $1 organisation, $2 run
-- $3 held at once, $4 starts per second, $5 starts per second of each flow: NULL for no limit
INSERT INTO run_limits (org_id, run, held_max, per_second, key_per_second)
VALUES ($1, replace($2::uuid::text, '-', ''), $3, $4, $5)
ON CONFLICT (org_id, run) DO UPDATE
SET held_max = excluded.held_max, per_second = excluded.per_second,
    key_per_second = excluded.key_per_second
