-- A job's log for people after $3, in order: log lines, alerts, and ended attempts. Output is skipped,
-- but only so much: returns the last event that was read, to continue from there.
--
-- $1 org   $2 id   $3 after this event   $4 rows to read   $5 rows to show
WITH walked AS MATERIALIZED (
    SELECT e.seq, e.kind, e.at
    FROM job_events AS e
    WHERE e.org_id = $1 AND e.job_id = $2 AND e.seq > $3
    ORDER BY e.seq
    LIMIT $4
),
page AS MATERIALIZED (
    SELECT w.seq
    FROM walked AS w
    WHERE w.kind IN ('log', 'alert', 'attempt')
    ORDER BY w.seq
    LIMIT $5
)
SELECT progress.walked_rows, progress.walked_to, e.seq, e.kind, e.data, e.at
FROM (SELECT count(*) AS walked_rows, max(w.seq) AS walked_to FROM walked AS w) AS progress
LEFT JOIN page AS p ON true
LEFT JOIN LATERAL (
    SELECT * FROM job_events AS e WHERE e.org_id = $1 AND e.job_id = $2 AND e.seq = p.seq
) AS e ON true
ORDER BY e.seq
