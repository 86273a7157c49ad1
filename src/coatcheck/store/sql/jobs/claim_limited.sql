-- Take out work of flows that are under a concurrency limit. queued -> dispatching.
--
-- Exact under any number of workers: its transaction holds the advisory lock of lock_limits.sql
-- from before this statement's snapshot until its commit, so no two of these see the same permit
-- free. A permit in use is a held job, counted here and stored nowhere.
--
-- Limits overlap (two flows of one org share its cap), so candidates are put in order, round robin
-- over flows, and numbered within every limit that applies; whoever is over any of them is left.
-- The first in order is number 1 everywhere, so a pass with a free permit always takes a job.
--
-- Which flow comes first is drawn by lot. A cursor would not be fair here: permits come back in an
-- order of their own, and it may pass over the same flow each time.
--
-- $1 lanes, $2 room in each   $3 endpoints, $4 timeout of each   $5 lease
-- $6, $7, $8 endpoint, org and flow that each lane's scan starts after
-- $9 flows to look at in a lane, at most   $10 true
--
-- Answers rows of two kinds: claimed jobs, and (no id) where each lane's scan ended.
WITH RECURSIVE /* include jobs/ready_flows.sql */,
held AS MATERIALIZED (
    SELECT j.endpoint, j.org_id, j.flow, count(*) AS jobs
    FROM jobs AS j
    WHERE j.lease IS NOT NULL
    GROUP BY j.endpoint, j.org_id, j.flow
),
applying AS MATERIALIZED (
    SELECT l.lane, l.room, l.endpoint, l.org_id, l.flow,
           c.org_id AS limit_org, c.scope AS limit_scope, c.name AS limit_name,
           c.held_max - (
               SELECT coalesce(sum(h.jobs), 0)::integer
               FROM held AS h
               WHERE CASE c.scope
                   WHEN 'org' THEN h.org_id = c.org_id
                   WHEN 'flow' THEN h.org_id = c.org_id AND h.flow = c.name
                   WHEN 'endpoint' THEN h.endpoint = c.name AND c.org_id IN ('*', h.org_id)
               END
           ) AS free
    FROM listed AS l
    CROSS JOIN LATERAL (
        SELECT * FROM concurrency_limits WHERE org_id = l.org_id AND scope = 'org'
        UNION ALL
        SELECT * FROM concurrency_limits
        WHERE org_id = l.org_id AND scope = 'flow' AND name = l.flow
        UNION ALL
        SELECT * FROM concurrency_limits
        WHERE org_id = l.org_id AND scope = 'endpoint' AND name = l.endpoint
        UNION ALL
        SELECT * FROM concurrency_limits
        WHERE org_id = '*' AND scope = 'endpoint' AND name = l.endpoint
    ) AS c
    WHERE l.wanted
),
open_flows AS MATERIALIZED (
    SELECT a.lane, a.room, a.endpoint, a.org_id, a.flow, min(a.free) AS free,
           row_number() OVER (PARTITION BY a.lane ORDER BY random()) AS lot,
           least(a.room, count(*) OVER (PARTITION BY a.lane)) AS flow_count
    FROM applying AS a
    GROUP BY a.lane, a.room, a.endpoint, a.org_id, a.flow
    HAVING min(a.free) > 0
),
candidates AS MATERIALIZED (
    SELECT f.lane, f.room, f.endpoint, f.org_id, f.flow, f.lot, ready.tid, ready.run_at, ready.id
    FROM open_flows AS f
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.run_at, j.id
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.lane = f.lane AND j.endpoint = f.endpoint
          AND j.org_id = f.org_id AND j.flow = f.flow
        ORDER BY j.run_at, j.id
        LIMIT least(f.free, (f.room + f.flow_count - 1) / f.flow_count)
        FOR UPDATE SKIP LOCKED
    ) AS ready
    WHERE f.lot <= f.room
),
in_flow AS (
    SELECT c.*, row_number() OVER (
        PARTITION BY c.lane, c.endpoint, c.org_id, c.flow ORDER BY c.run_at, c.id
    ) AS position
    FROM candidates AS c
),
in_order AS (
    SELECT i.*,
           row_number() OVER (ORDER BY i.lane, i.position, i.lot) AS turn,
           row_number() OVER (PARTITION BY i.lane ORDER BY i.position, i.lot) AS turn_in_lane
    FROM in_flow AS i
),
permits AS (
    SELECT o.tid, o.turn, a.free, row_number() OVER (
        PARTITION BY a.limit_org, a.limit_scope, a.limit_name ORDER BY o.turn
    ) AS number
    FROM in_order AS o
    JOIN applying AS a
      ON a.lane = o.lane AND a.endpoint = o.endpoint AND a.org_id = o.org_id AND a.flow = o.flow
    WHERE o.turn_in_lane <= o.room
),
picked AS MATERIALIZED (
    SELECT p.tid, min(p.turn)::integer AS rank
    FROM permits AS p
    GROUP BY p.tid
    HAVING bool_and(p.number <= p.free)
),
claimed AS (
    UPDATE jobs AS j
    SET state = 'dispatching', lease = $5::bigint, updated_at = now(),
        dispatched_at = greatest(now(), j.created_at),
        run_deadline = now() + coalesce(
            j.timeout_seconds,
            (SELECT s.timeout FROM served AS s WHERE s.endpoint = j.endpoint)
        ) * interval '1 second'
    FROM picked AS p
    WHERE j.ctid = p.tid
    RETURNING j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow, j.payload,
              j.failures + j.crashes + 1 AS attempt, j.failures, j.unreachables,
              j.timeout_seconds, j.request_id, p.rank
)
SELECT * FROM claimed
UNION ALL
SELECT e.org_id, NULL, e.lane::text, e.endpoint, e.flow, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM ended AS e
