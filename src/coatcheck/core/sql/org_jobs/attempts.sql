-- A job's attempts that did not complete, in order, and when its remote work was last spawned.
--
-- $1 org   $2 id
SELECT e.data, NULL::timestamptz AS spawned_at
FROM (
    SELECT e.seq, e.data
    FROM job_events AS e
    WHERE e.org_id = $1 AND e.job_id = $2 AND e.kind = 'attempt'
    ORDER BY e.seq
) AS e
UNION ALL
SELECT NULL, r.spawned_at
FROM remote_calls AS r
WHERE r.org_id = $1 AND r.job_id = $2 AND r.spawned_at IS NOT NULL
