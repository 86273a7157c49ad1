-- The error codes of failed jobs in a span, most frequent first.
--
-- $1 org, or '*' for all of them   $2 step in seconds   $3 the span's first moment   $4 codes at most
SELECT f.code, sum(f.jobs)::bigint AS jobs
FROM failure_roll_ups AS f
WHERE f.org_id = $1 AND f.step_seconds = $2::smallint AND f.at >= $3::timestamptz
GROUP BY f.code
ORDER BY jobs DESC, f.code
LIMIT $4::integer
