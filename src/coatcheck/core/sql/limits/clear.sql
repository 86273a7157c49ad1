-- Remove a concurrency limit.
DELETE FROM concurrency_limits WHERE org_id = $1 AND scope = $2 AND name = $3 RETURNING held_max
