-- Add a process's counts to the rows of this minute, quarter of an hour and hour, by the database's
-- clock.
--
-- In the order of the key, so that processes that meet here wait for each other and do not deadlock.
-- Distributions may differ in length: empty buckets at the end are left out.
--
-- $1-$11 org, lane, submitted, started, completed, failed, cancelled, retried, rescued, waits, runs (these two
-- as array literals)   $12-$14 failures: org, code, jobs
WITH steps AS (
    SELECT s.seconds,
           date_bin(s.seconds * interval '1 second', now(), timestamptz '2000-01-01 00:00:00Z') AS at
    FROM unnest('{60,900,3600}'::smallint[]) AS s (seconds)
),
failures AS (
    INSERT INTO failure_roll_ups AS f (org_id, step_seconds, at, code, jobs)
    SELECT c.org_id, s.seconds, s.at, c.code, c.jobs
    FROM unnest($12::text[], $13::text[], $14::bigint[]) AS c (org_id, code, jobs)
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
    $1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::text[], $11::text[]
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
