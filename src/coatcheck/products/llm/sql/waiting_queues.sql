-- The queues of waiting llm jobs: for each organisation and model, since when its oldest few jobs wait,
-- in seconds since 1970.
--
-- A loose scan of jobs_ready, as in jobs/ready_flows.sql: each step of the recursion is one probe for
-- the oldest job of the next queue, however long the queue before it is. The scan begins after a
-- position that the worker remembers, goes on to the last queue, and from the first one back to that
-- position. So with more queues than one scan may visit, all of them get their turn. `scanned` is the
-- number of queues visited before.
--
-- $1 lanes, $2 endpoints, $3, $4 org and flow after which each scan begins
-- $5 steps, $6 jobs of a queue, at most
WITH RECURSIVE lines AS (
    SELECT a.lane::job_lane AS lane, a.endpoint COLLATE "C" AS endpoint,
           a.org_id COLLATE "C" AS after_org, a.flow COLLATE "C" AS after_flow,
           a.org_id COLLATE "C" AS org_id, a.flow COLLATE "C" AS flow,
           NULL::timestamptz AS run_at, a.org_id = '' AS wrapped, false AS gone_round, 0 AS scanned
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS a (lane, endpoint, org_id, flow)
    UNION ALL
    SELECT l.lane, l.endpoint, l.after_org, l.after_flow,
           coalesce(next.org_id, ''), coalesce(next.flow, ''), next.run_at,
           l.wrapped OR next.org_id IS NULL, l.wrapped AND next.org_id IS NULL, l.scanned + 1
    FROM lines AS l
    LEFT JOIN LATERAL (
        SELECT ready.org_id, ready.flow, ready.run_at
        FROM (
            SELECT j.org_id, j.flow, j.run_at
            FROM jobs AS j
            WHERE j.state = 'queued' AND j.lane = l.lane AND j.endpoint = l.endpoint
              AND (j.org_id, j.flow) > (l.org_id, l.flow)
            ORDER BY j.org_id, j.flow, j.run_at, j.id
            LIMIT 1
        ) AS ready
        WHERE NOT l.wrapped OR l.after_org = ''
           OR (ready.org_id, ready.flow) <= (l.after_org, l.after_flow)
    ) AS next ON true
    WHERE NOT l.gone_round AND l.scanned < $5::integer
)
SELECT l.lane::text AS lane, l.endpoint, l.org_id, l.flow, l.scanned,
       CASE $6::integer
           WHEN 1 THEN ARRAY[extract(epoch FROM l.run_at)::double precision]
           ELSE array(
               SELECT extract(epoch FROM j.run_at)::double precision
               FROM jobs AS j
               WHERE j.state = 'queued' AND j.lane = l.lane AND j.endpoint = l.endpoint
                 AND j.org_id = l.org_id AND j.flow = l.flow
               ORDER BY j.run_at, j.id
               LIMIT $6::integer
           )
       END AS since
FROM lines AS l
WHERE l.run_at IS NOT NULL
