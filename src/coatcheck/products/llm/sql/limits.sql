-- The concurrency limits of some organisations, and how many jobs each limit still allows. Counted as
-- in jobs/claim_limited.sql, whose lock the transaction holds as well.
--
-- $1 organisations
WITH held AS MATERIALIZED (
    SELECT j.endpoint, j.org_id, j.flow, count(*) AS jobs
    FROM jobs AS j
    WHERE j.lease IS NOT NULL
    GROUP BY j.endpoint, j.org_id, j.flow
)
SELECT c.org_id, c.scope, c.name, c.held_max - (
           SELECT coalesce(sum(h.jobs), 0)
           FROM held AS h
           WHERE CASE c.scope
               WHEN 'org' THEN h.org_id = c.org_id
               WHEN 'flow' THEN h.org_id = c.org_id AND h.flow = c.name
               WHEN 'endpoint' THEN h.endpoint = c.name AND c.org_id IN ('*', h.org_id)
           END
       )::integer AS free
FROM concurrency_limits AS c
WHERE c.org_id = '*' OR c.org_id = ANY ($1::text[])
