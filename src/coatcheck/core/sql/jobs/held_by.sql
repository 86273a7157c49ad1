-- The worker that holds a job `a`, and whether it was seen within half of its lease time for the job's
-- lane: included by stall.sql and explain.sql, which give `serving`.
SELECT w.boot, w.name, w.silent_for,
       w.silent_for <= interval '0.5 seconds' * CASE a.lane
           WHEN 'urgent' THEN w.urgent_seconds
           WHEN 'standard' THEN w.standard_seconds
           WHEN 'bulk' THEN w.bulk_seconds
       END AS is_heard,
       CASE a.lane
           WHEN 'urgent' THEN w.urgent_seconds
           WHEN 'standard' THEN w.standard_seconds
           WHEN 'bulk' THEN w.bulk_seconds
       END AS lease_seconds
FROM serving AS w
WHERE w.boot = a.lease >> 40
