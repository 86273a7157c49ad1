-- name: give_back once
-- Return requests that were taken and not used, if their window is still the current one. Rows are
-- locked in the key's order, as in take.
--
-- :window_seconds  window lengths in seconds   :windows  the windows' starts
--
-- Once: a repeat would give back twice what may be used once.
WITH given AS (
    SELECT w.org_id, w.name, w.seconds, g.requests
    FROM unnest(:orgs::text[], :names::text[], :window_seconds::integer[], :windows::timestamptz[], :requests::bigint[])
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

-- name: prune
-- Delete windows that ended a day ago: their key was revoked, or nobody calls. A row that is being
-- written is in use, so it is skipped and not waited for.
DELETE FROM rate_windows AS w
USING (
    SELECT org_id, name, seconds FROM rate_windows
    WHERE window_start + make_interval(secs => seconds) < clock_timestamp() - interval '1 day'
    FOR UPDATE SKIP LOCKED
) AS old
WHERE w.org_id = old.org_id AND w.name = old.name AND w.seconds = old.seconds

-- name: take once
-- Take requests from rate limits, many at once: each gets what it wants, or what is left in its
-- window. The database's clock alone defines the windows, from the epoch on.
--
-- An upsert, so that concurrent replicas queue at the row and each sees what the one before used.
-- Rows are locked in the key's order, so that two statements over the same rows cannot deadlock.
-- A statement that waited and finds a later window than its own counts in that one: windows only
-- ever move on, also when the clock is set back.
--
-- :window_seconds  window lengths in seconds   :limits  requests per window
--
-- Once: each try takes requests. RateWindows repeats it one time, after a lost answer.
INSERT INTO rate_windows AS w
    (org_id, name, seconds, window_start, used, requests_max, granted)
SELECT
    t.org_id, t.name, t.seconds,
    date_bin(make_interval(secs => t.seconds), clock_timestamp(), timestamptz '1970-01-01Z'),
    least(t.wanted, t.requests_max), t.requests_max, least(t.wanted, t.requests_max)
FROM unnest(:orgs::text[], :names::text[], :window_seconds::integer[], :limits::bigint[], :wanted::bigint[])
    AS t (org_id, name, seconds, requests_max, wanted)
ORDER BY t.org_id COLLATE "C", t.name COLLATE "C", t.seconds
ON CONFLICT (org_id, name, seconds) DO UPDATE SET
    window_start = greatest(w.window_start, excluded.window_start),
    requests_max = excluded.requests_max,
    granted = CASE
        WHEN w.window_start < excluded.window_start THEN excluded.granted
        ELSE least(excluded.granted, greatest(excluded.requests_max - w.used, 0))
    END,
    used = CASE
        WHEN w.window_start < excluded.window_start THEN excluded.granted
        ELSE w.used + least(excluded.granted, greatest(excluded.requests_max - w.used, 0))
    END
RETURNING
    org_id, name, seconds, window_start, used, granted,
    extract(
        epoch FROM window_start + make_interval(secs => seconds) - clock_timestamp()
    )::double precision AS seconds_left
