-- A job's log lines, output chunks and alerts after $3, in order. What became of its attempts is not
-- among them: console/log.sql has it.
SELECT seq, kind, data, at
FROM job_events
WHERE org_id = $1 AND job_id = $2 AND seq > $3 AND kind <> 'attempt'
ORDER BY seq
LIMIT $4
