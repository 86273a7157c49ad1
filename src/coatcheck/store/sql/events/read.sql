-- A job's log lines and output chunks after $3, in order.
SELECT seq, kind, data, at
FROM job_events
WHERE org_id = $1 AND job_id = $2 AND seq > $3
ORDER BY seq
LIMIT $4
