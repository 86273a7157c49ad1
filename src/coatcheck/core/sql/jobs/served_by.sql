-- The workers that serve a job `a`, and whether each was seen within its lease time for the job's lane:
-- included by stall.sql and explain.sql, which give `serving`. `threads_held`: how many threads that
-- handlers do not release keep it from claiming the job.
SELECT w.boot, w.silent_for, w.slots[array_position(w.lanes, a.lane::text)] AS slots,
       w.reserved[array_position(w.lanes, a.lane::text)] AS reserved,
       w.silent_for <= interval '1 second' * CASE a.lane
           WHEN 'urgent' THEN w.urgent_seconds
           WHEN 'standard' THEN w.standard_seconds
           WHEN 'bulk' THEN w.bulk_seconds
       END AS is_alive,
       (w.threads_held ->> a.endpoint)::integer AS threads_held
FROM serving AS w
WHERE a.endpoint = ANY (w.endpoints) AND a.lane::text = ANY (w.lanes)
