-- A job's log lines, output chunks and alerts after $3, in order. Events of attempts are not among them:
-- org_jobs/log.sql has those. A page ends with the event that fills it: nothing behind it is read.
--
-- $1 org   $2 job   $3 after this one   $4 rows at most   $5 bytes that end the page
SELECT p.seq, p.kind, p.data, p.at
FROM (
    SELECT e.seq, e.kind, e.data, e.at,
           sum(octet_length(e.data)) OVER (ORDER BY e.seq ROWS UNBOUNDED PRECEDING)
               - octet_length(e.data) AS bytes_before
    FROM (
        SELECT seq, kind, data, at
        FROM job_events
        WHERE org_id = $1 AND job_id = $2 AND seq > $3 AND kind <> 'attempt'
        ORDER BY seq
        LIMIT $4
    ) AS e
) AS p
WHERE p.bytes_before < $5::bigint
ORDER BY p.seq
