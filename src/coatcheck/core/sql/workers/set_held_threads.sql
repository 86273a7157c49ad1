-- Record the endpoints for which a worker has no thread left, because abandoned handlers still run in
-- them. By its key; changes nothing for a worker that is no longer registered. Not a part of the
-- heartbeat: it is sent when it changes, which is rare.
--
-- $1 boot   $2 endpoints, $3 how many threads each
UPDATE workers
SET threads_held = (
    SELECT coalesce(jsonb_object_agg(held.endpoint, held.threads), '{}')
    FROM unnest($2::text[], $3::integer[]) AS held (endpoint, threads)
)
WHERE boot = $1
