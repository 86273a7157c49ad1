-- name: add once
-- Add a process's counts to the rows of this minute, quarter of an hour and hour, by the database's
-- clock.
--
-- In the order of the key, so that processes that meet here wait for each other and do not deadlock.
-- Distributions may differ in length: empty buckets at the end are left out.
--
-- Once: a missing count misleads nobody, a double one would.
WITH steps AS (
    SELECT s.seconds,
           date_bin(s.seconds * interval '1 second', now(), timestamptz '2000-01-01 00:00:00Z') AS at
    FROM unnest('{60,900,3600}'::smallint[]) AS s (seconds)
),
failures AS (
    INSERT INTO failure_roll_ups AS f (org_id, step_seconds, at, code, jobs)
    SELECT c.org_id, s.seconds, s.at, c.code, c.jobs
    FROM unnest(:failure_orgs::text[], :failure_codes::text[], :failure_jobs::bigint[]) AS c (org_id, code, jobs)
    CROSS JOIN steps AS s
    ORDER BY c.org_id COLLATE "C", s.seconds, c.code COLLATE "C"
    ON CONFLICT (org_id, step_seconds, at, code) DO UPDATE SET jobs = f.jobs + excluded.jobs
)
INSERT INTO job_roll_ups AS r (
    org_id, step_seconds, at, lane, submitted, started, completed, failed, cancelled, retried,
    rescued, waits, runs
)
SELECT c.org_id, s.seconds, s.at, c.lane::job_lane, c.submitted,
       c.started, c.completed, c.failed, c.cancelled, c.retried, c.rescued, c.waits::integer[],
       c.runs::integer[]
FROM unnest(
    :orgs::text[], :lanes::text[], :submitted::bigint[], :started::bigint[], :completed::bigint[], :failed::bigint[], :cancelled::bigint[],
    :retried::bigint[], :rescued::bigint[], :waits::text[], :runs::text[]
) AS c (
    org_id, lane, submitted, started, completed, failed, cancelled, retried, rescued, waits, runs
)
CROSS JOIN steps AS s
ORDER BY c.org_id COLLATE "C", s.seconds, c.lane::job_lane
ON CONFLICT (org_id, step_seconds, at, lane) DO UPDATE
SET submitted = r.submitted + excluded.submitted, started = r.started + excluded.started,
    completed = r.completed + excluded.completed, failed = r.failed + excluded.failed,
    cancelled = r.cancelled + excluded.cancelled, retried = r.retried + excluded.retried,
    rescued = r.rescued + excluded.rescued,
    waits = ARRAY(
        SELECT coalesce(u.before, 0) + coalesce(u.more, 0)
        FROM unnest(r.waits, excluded.waits) WITH ORDINALITY AS u (before, more, bucket)
        ORDER BY u.bucket
    ),
    runs = ARRAY(
        SELECT coalesce(u.before, 0) + coalesce(u.more, 0)
        FROM unnest(r.runs, excluded.runs) WITH ORDINALITY AS u (before, more, bucket)
        ORDER BY u.bucket
    )

-- name: failures
-- The error codes of failed jobs in a span, most frequent first.
--
-- :org  org, or '*' for all of them   :step_seconds  step in seconds
-- :since  the span's first moment   :codes_max  codes at most
SELECT f.code, sum(f.jobs)::bigint AS jobs
FROM failure_roll_ups AS f
WHERE f.org_id = :org AND f.step_seconds = :step_seconds::smallint AND f.at >= :since::timestamptz
GROUP BY f.code
ORDER BY jobs DESC, f.code
LIMIT :codes_max::integer

-- name: prune
-- Delete expired roll-ups, oldest first, a chunk of each kind at a time.
--
-- :step_seconds  steps in seconds   :keep_seconds  how many seconds each is kept
WITH old_jobs AS (
    SELECT s.org_id, s.step_seconds, s.at, s.lane
    FROM unnest(:step_seconds::smallint[], :keep_seconds::integer[]) AS k (step, seconds)
    CROSS JOIN LATERAL (
        SELECT r.org_id, r.step_seconds, r.at, r.lane
        FROM job_roll_ups AS r
        WHERE r.step_seconds = k.step AND r.at < now() - k.seconds * interval '1 second'
        ORDER BY r.at
        LIMIT :rows_max::integer
    ) AS s
),
old_failures AS (
    SELECT s.org_id, s.step_seconds, s.at, s.code
    FROM unnest(:step_seconds::smallint[], :keep_seconds::integer[]) AS k (step, seconds)
    CROSS JOIN LATERAL (
        SELECT f.org_id, f.step_seconds, f.at, f.code
        FROM failure_roll_ups AS f
        WHERE f.step_seconds = k.step AND f.at < now() - k.seconds * interval '1 second'
        ORDER BY f.at
        LIMIT :rows_max::integer
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

-- name: recent
-- Recent counts of one lane of an organisation, minute by minute, for forecasts. The current minute is
-- among them; `seconds` is how much of it has passed.
SELECT r.started, r.waits, r.runs,
       least(60, date_part('epoch', now() - r.at))::double precision AS seconds
FROM job_roll_ups AS r
WHERE r.org_id = :org AND r.step_seconds = 60 AND r.lane = :lane::text::job_lane
  AND r.at >= date_trunc('minute', now()) - :minutes::integer * interval '1 minute'
ORDER BY r.at DESC

-- name: series
-- The counts of a span, a row for each step and lane with any, oldest first, with the interval that it
-- belongs to. The reader sums up the distributions: taking arrays apart, adding them and putting them
-- together again took the server ten times as long.
--
-- :org  org, or '*' for all of them   :step_seconds  step in seconds
-- :since  the span's first moment   :interval_seconds  seconds of an interval, a multiple of the step
SELECT date_bin(:interval_seconds::integer * interval '1 second', r.at, timestamptz '2000-01-01 00:00:00Z') AS since,
       r.submitted, r.started, r.completed, r.failed, r.cancelled, r.retried, r.rescued, r.waits,
       r.runs
FROM job_roll_ups AS r
WHERE r.org_id = :org AND r.step_seconds = :step_seconds::smallint AND r.at >= :since::timestamptz
ORDER BY r.at
