-- How many jobs are ahead of a queued one in its flow, up to a bound, and how many flows of its
-- organisation have work for its endpoint in its lane, up to another: they take turns.
--
-- $1 org   $2 id   $3 jobs at most   $4 flows at most
WITH RECURSIVE asked AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lane, j.endpoint, j.flow, j.run_at
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2 AND j.state = 'queued'
),
lines AS (
    SELECT a.org_id, a.lane, a.endpoint, NULL::text COLLATE "C" AS flow, 0 AS nth
    FROM asked AS a
    UNION ALL
    SELECT l.org_id, l.lane, l.endpoint, n.flow, l.nth + 1
    FROM lines AS l
    CROSS JOIN LATERAL (
        SELECT j.flow
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.lane = l.lane AND j.endpoint = l.endpoint
          AND j.org_id = l.org_id AND (j.flow > l.flow OR l.flow IS NULL)
        ORDER BY j.flow
        LIMIT 1
    ) AS n
    WHERE l.nth < $4::integer
)
SELECT (
           SELECT count(*)
           FROM (
               SELECT FROM jobs AS j
               WHERE j.state = 'queued' AND j.lane = a.lane AND j.endpoint = a.endpoint
                 AND j.org_id = a.org_id AND j.flow = a.flow AND (j.run_at, j.id) < (a.run_at, a.id)
               LIMIT $3::integer
           ) AS before
       ) AS jobs,
       (SELECT max(l.nth) FROM lines AS l) AS flows
FROM asked AS a
