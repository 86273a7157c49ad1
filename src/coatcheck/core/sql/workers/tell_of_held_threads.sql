-- A worker says for which endpoints it has no thread left, because handlers that were given up go on
-- running in theirs. By its key; a worker whose registration is gone changes nothing. Not a part of
-- the heartbeat: it is said when it changes, which is hardly ever.
--
-- $1 boot   $2 endpoints, $3 for how many threads each
UPDATE workers
SET threads_held = (
    SELECT coalesce(jsonb_object_agg(held.endpoint, held.threads), '{}')
    FROM unnest($2::text[], $3::integer[]) AS held (endpoint, threads)
)
WHERE boot = $1
