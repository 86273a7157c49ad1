-- Set or change how many jobs may be held at once, from the next claim on. A limit that code declared
-- is then set by hand: the next worker to start leaves it as it is.
INSERT INTO concurrency_limits (org_id, scope, name, held_max)
VALUES ($1, $2, $3, $4)
ON CONFLICT (org_id, scope, name) DO UPDATE SET held_max = excluded.held_max, declared = false
