-- The new events of jobs after the last that each reader saw, and the state of each: one statement for
-- all readers that arrived while the last one was in flight.
--
-- A job and its events are read in one snapshot: if the job has ended and its page of events is not
-- full, no event follows. A page has at most $4 events, and ends when its bytes reach $5; a value's
-- length is read without the value.
--
-- $1 organisations, $2 ids, $3 after which event of each   $4 events, $5 bytes in a page
SELECT j.org_id, j.id, w.after, j.state::text AS state, j.failures, j.crashes, j.error_code,
       j.error_message, page.seqs, page.kinds, page.data, page.times
FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS w (org_id, id, after)
JOIN jobs AS j ON j.org_id = w.org_id AND j.id = w.id
CROSS JOIN LATERAL (
    SELECT array_agg(e.seq ORDER BY e.seq) AS seqs, array_agg(e.kind ORDER BY e.seq) AS kinds,
           array_agg(e.data ORDER BY e.seq) AS data, array_agg(e.at ORDER BY e.seq) AS times
    FROM (
        SELECT notified.*, sum(octet_length(notified.data)) OVER (ORDER BY notified.seq) - octet_length(notified.data)
                   AS bytes_before
        FROM (
            SELECT seq, kind, data, at
            FROM job_events
            WHERE org_id = w.org_id AND job_id = w.id AND seq > w.after AND kind <> 'attempt'
            ORDER BY seq
            LIMIT $4
        ) AS notified
    ) AS e
    WHERE e.bytes_before < $5
) AS page
