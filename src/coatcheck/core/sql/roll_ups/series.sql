-- The counts of a span, a row for each step and lane with any, oldest first, with the interval that it
-- belongs to. The reader sums up the distributions: taking arrays apart, adding them and putting them
-- together again took the server ten times as long.
--
-- $1 org, or '*' for all of them   $2 step in seconds   $3 the span's first moment
-- $4 seconds of an interval, a multiple of the step
SELECT date_bin($4::integer * interval '1 second', r.at, timestamptz '2000-01-01 00:00:00Z') AS since,
       r.submitted, r.started, r.completed, r.failed, r.cancelled, r.retried, r.rescued, r.waits,
       r.runs
FROM job_roll_ups AS r
WHERE r.org_id = $1 AND r.step_seconds = $2::smallint AND r.at >= $3::timestamptz
ORDER BY r.at
