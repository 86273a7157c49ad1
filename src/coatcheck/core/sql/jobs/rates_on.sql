-- The rates of its run that a job `a` has to wait for now, and until when: included by stall.sql and
-- explain.sql. That of the whole run has no flow.
SELECT t.flow, CASE t.flow WHEN '' THEN r.per_second ELSE r.key_per_second END AS per_second,
       t.in_step_at
FROM run_limits AS r
JOIN run_tokens AS t ON t.org_id = r.org_id AND t.run = r.run AND (
    t.flow = '' AND r.per_second IS NOT NULL
    OR t.flow = a.flow AND r.key_per_second IS NOT NULL
)
WHERE r.org_id = a.org_id AND r.run = split_part(a.flow, '/', 1)
  AND t.flow IN ('', a.flow) AND t.in_step_at > now()
