-- The concurrency limits that apply to a job `a`, and how many jobs each holds: included by stall.sql
-- and explain.sql, whose `held` counts as claim_limited.sql does. `held` is not read without a limit.
SELECT c.org_id AS limit_org, c.scope, c.name, c.held_max, (
           SELECT coalesce(sum(h.jobs), 0)::bigint
           FROM held AS h
           WHERE CASE c.scope
               WHEN 'org' THEN h.org_id = c.org_id
               WHEN 'flow' THEN h.org_id = c.org_id AND h.flow = c.name
               WHEN 'endpoint' THEN h.endpoint = c.name AND c.org_id IN ('*', h.org_id)
           END
       ) AS held
FROM (
    SELECT * FROM concurrency_limits WHERE org_id = a.org_id AND scope = 'org'
    UNION ALL
    SELECT * FROM concurrency_limits
    WHERE org_id = a.org_id AND scope = 'flow' AND name = a.flow
    UNION ALL
    SELECT * FROM concurrency_limits
    WHERE org_id = a.org_id AND scope = 'endpoint' AND name = a.endpoint
    UNION ALL
    SELECT * FROM concurrency_limits
    WHERE org_id = '*' AND scope = 'endpoint' AND name = a.endpoint
) AS c
UNION ALL
SELECT r.org_id, 'run', r.run, r.held_max, (
           SELECT coalesce(sum(h.jobs), 0)::bigint
           FROM held AS h
           WHERE h.org_id = r.org_id AND split_part(h.flow, '/', 1) = r.run
       )
FROM run_limits AS r
WHERE r.org_id = a.org_id AND r.run = split_part(a.flow, '/', 1) AND r.held_max IS NOT NULL
