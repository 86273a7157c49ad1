-- The flows that have work: common table expressions included by exchange.sql and
-- claim_limited.sql, which share $1 to $10. Gives `served`, `listed` and `ended`.
--
-- A flow's place is (endpoint, org, flow), as in the index. A lane's scan begins after its cursor
-- ($6 to $8), goes on to the last place, and from the first one back to the cursor: a stretch for
-- each endpoint. It is a loose scan of jobs_ready: each step of the recursion is one index probe,
-- for the next flow of the stretch, however long the backlog of the one before. A step that finds
-- none stands before the next stretch, with no flow.
--
-- A run that is under a limit (schema/0012_claim_rates.sql) is one line, however many flows it has:
-- the scan goes on after all of them. Any other flow is a line of its own. `place` is where the
-- scan goes on: the flow, or what stands right behind a run's last one.
--
-- The scan ends when it has found a line for every job there is room for, when it has gone round,
-- or after $9 lines. `ended` is where the next one goes on: so each line has its turn, with more
-- lines than room, and with lines that are not `wanted` in between ($10: under a limit or not).
asked AS (
    SELECT a.lane::job_lane AS lane, a.room, a.after_endpoint COLLATE "C" AS after_endpoint,
           a.after_org COLLATE "C" AS after_org, a.after_flow COLLATE "C" AS after_flow
    FROM unnest($1::text[], $2::integer[], $6::text[], $7::text[], $8::text[])
        AS a (lane, room, after_endpoint, after_org, after_flow)
    WHERE a.room > 0
),
served AS (
    SELECT s.endpoint COLLATE "C" AS endpoint, s.timeout
    FROM unnest($3::text[], $4::double precision[]) AS s (endpoint, timeout)
),
stretches AS MATERIALIZED (
    SELECT a.lane, s.endpoint,
           row_number() OVER (PARTITION BY a.lane ORDER BY round.number, s.endpoint) AS number,
           CASE WHEN here AND round.number = 0 THEN a.after_org ELSE '' END AS after_org,
           CASE WHEN here AND round.number = 0 THEN a.after_flow ELSE '' END AS after_flow,
           CASE WHEN here AND round.number = 1 THEN a.after_org END AS last_org,
           CASE WHEN here AND round.number = 1 THEN a.after_flow END AS last_flow
    FROM asked AS a
    CROSS JOIN served AS s
    CROSS JOIN (VALUES (0), (1)) AS round (number)
    CROSS JOIN LATERAL (SELECT s.endpoint = a.after_endpoint) AS at_cursor (here)
    WHERE here OR (s.endpoint > a.after_endpoint) = (round.number = 0)
),
flows AS (
    SELECT a.lane, a.room, 1::bigint AS stretch, NULL::text COLLATE "C" AS endpoint,
           NULL::text COLLATE "C" AS org_id, NULL::text COLLATE "C" AS flow,
           NULL::text COLLATE "C" AS place, false AS of_run, false AS wanted,
           0 AS scanned, 0 AS found
    FROM asked AS a
    UNION ALL
    SELECT f.lane, f.room, f.stretch + (next.org_id IS NULL)::integer, s.endpoint,
           next.org_id, next.flow, next.place, next.of_run, next.wanted,
           f.scanned + (next.org_id IS NOT NULL)::integer,
           f.found + coalesce(next.wanted, false)::integer
    FROM flows AS f
    JOIN stretches AS s ON s.lane = f.lane AND s.number = f.stretch
    LEFT JOIN LATERAL (
        SELECT ready.org_id, ready.flow, of_run,
               CASE WHEN of_run THEN split_part(ready.flow, '/', 1) || '0' ELSE ready.flow END
                   AS place,
               $10::boolean = (
                   of_run
                   -- Looked at once a claim: most have no limits.
                   OR EXISTS (SELECT FROM concurrency_limits)
                   AND (
                       EXISTS (
                           SELECT FROM concurrency_limits AS c
                           WHERE c.org_id = ready.org_id AND c.scope = 'org'
                       )
                       OR EXISTS (
                           SELECT FROM concurrency_limits AS c
                           WHERE c.org_id = ready.org_id AND c.scope = 'flow'
                             AND c.name = ready.flow
                       )
                       OR EXISTS (
                           SELECT FROM concurrency_limits AS c
                           WHERE c.org_id = ready.org_id AND c.scope = 'endpoint'
                             AND c.name = s.endpoint
                       )
                       OR EXISTS (
                           SELECT FROM concurrency_limits AS c
                           WHERE c.org_id = '*' AND c.scope = 'endpoint' AND c.name = s.endpoint
                       )
                   )
               ) AS wanted
        FROM (
            SELECT j.org_id, j.flow
            FROM jobs AS j
            WHERE j.state = 'queued' AND j.lane = s.lane AND j.endpoint = s.endpoint
              AND (j.org_id, j.flow)
                  > (coalesce(f.org_id, s.after_org), coalesce(f.place, s.after_flow))
            ORDER BY j.org_id, j.flow
            LIMIT 1
        ) AS ready
        CROSS JOIN LATERAL (
            SELECT EXISTS (SELECT FROM run_limits) AND (
                SELECT true FROM run_limits AS r
                WHERE r.org_id = ready.org_id AND r.run = split_part(ready.flow, '/', 1)
            ) IS NOT NULL
            OFFSET 0  -- asked once for each line, and not wherever it is named
        ) AS limited (of_run)
        WHERE s.last_org IS NULL OR (ready.org_id, ready.flow) <= (s.last_org, s.last_flow)
    ) AS next ON true
    WHERE f.scanned < $9::integer AND (f.found < f.room OR $10::boolean)
),
listed AS MATERIALIZED (
    SELECT f.lane, f.room, f.endpoint, f.org_id, f.flow, f.place, f.of_run, f.wanted,
           f.scanned, f.found,
           max(f.found) OVER (PARTITION BY f.lane) AS flow_count,
           max(f.scanned) OVER (PARTITION BY f.lane) AS scan_count
    FROM flows AS f
    WHERE f.org_id IS NOT NULL
),
ended AS (
    SELECT DISTINCT ON (l.lane) l.lane, l.endpoint, l.org_id, l.place AS flow
    FROM listed AS l
    ORDER BY l.lane,
             -- All the way round, and more room than flows: go on after the last flow that was
             -- given one job more than the others.
             (
                 l.wanted AND l.scan_count < $9::integer AND l.flow_count < l.room
                 AND l.found = l.room % l.flow_count
             ) IS TRUE DESC,
             l.scanned DESC
)
