-- Return requests that were taken and not used, if their window is still the current one. Rows are
-- locked in the key's order, as in take.sql.
--
-- $1 organisations, $2 names, $3 window lengths in seconds, $4 the windows' starts, $5 requests
WITH given AS (
    SELECT w.org_id, w.name, w.seconds, g.requests
    FROM unnest($1::text[], $2::text[], $3::integer[], $4::timestamptz[], $5::bigint[])
        AS g (org_id, name, seconds, window_start, requests)
    JOIN rate_windows AS w
        ON w.org_id = g.org_id AND w.name = g.name AND w.seconds = g.seconds
        AND w.window_start = g.window_start
    ORDER BY w.org_id, w.name, w.seconds
    FOR UPDATE OF w
)
UPDATE rate_windows AS w
SET used = greatest(w.used - given.requests, 0)
FROM given
WHERE w.org_id = given.org_id AND w.name = given.name AND w.seconds = given.seconds
