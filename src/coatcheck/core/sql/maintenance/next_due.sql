-- Seconds until the next job is due, or NULL.
SELECT extract(epoch FROM min(j.run_at) - clock_timestamp())::double precision
FROM jobs AS j
WHERE j.state IN ('staged', 'retrying') AND j.run_at < 'infinity'
