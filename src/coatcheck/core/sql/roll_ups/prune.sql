-- Delete expired roll-ups, oldest first, a chunk of each kind at a time.
--
-- $1 steps in seconds, $2 how many seconds each is kept   $3 rows at most
WITH old_jobs AS (
    SELECT s.org_id, s.step_seconds, s.at, s.lane
    FROM unnest($1::smallint[], $2::integer[]) AS k (step, seconds)
    CROSS JOIN LATERAL (
        SELECT r.org_id, r.step_seconds, r.at, r.lane
        FROM job_roll_ups AS r
        WHERE r.step_seconds = k.step AND r.at < now() - k.seconds * interval '1 second'
        ORDER BY r.at
        LIMIT $3::integer
    ) AS s
),
old_failures AS (
    SELECT s.org_id, s.step_seconds, s.at, s.code
    FROM unnest($1::smallint[], $2::integer[]) AS k (step, seconds)
    CROSS JOIN LATERAL (
        SELECT f.org_id, f.step_seconds, f.at, f.code
        FROM failure_roll_ups AS f
        WHERE f.step_seconds = k.step AND f.at < now() - k.seconds * interval '1 second'
        ORDER BY f.at
        LIMIT $3::integer
    ) AS s
),
gone_jobs AS (
    DELETE FROM job_roll_ups AS r USING old_jobs AS o
    WHERE r.org_id = o.org_id AND r.step_seconds = o.step_seconds AND r.at = o.at AND r.lane = o.lane
    RETURNING 1
),
gone_failures AS (
    DELETE FROM failure_roll_ups AS f USING old_failures AS o
    WHERE f.org_id = o.org_id AND f.step_seconds = o.step_seconds AND f.at = o.at AND f.code = o.code
    RETURNING 1
)
SELECT greatest((SELECT count(*) FROM gone_jobs), (SELECT count(*) FROM gone_failures)) AS rows
