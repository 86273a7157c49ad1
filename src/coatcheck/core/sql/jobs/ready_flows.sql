-- The flows to claim jobs from, organisations first: common table expressions included by
-- exchange.sql and claim_limited.sql, which share $1 to $10. Gives `served`, `listed` and `ended`.
--
-- Two loose scans of jobs_ready: each step of a recursion is one index probe, however long the
-- backlog that it passes.
--
-- `pairs` looks for organisations. Each endpoint has its own scan, from the organisation after the
-- lane's cursor ($6) to the last one, and from the first one back to the cursor. A step finds the next
-- organisation; or the second flow of the same one, and then the rest of it is skipped. A scan ends
-- when it has found an organisation for every job there is room for, when it has come full circle, or
-- after its part of $9 probes (`looks_max`, the same for every endpoint). Where one ended for that
-- last reason, `cuts`, no organisation after it counts: the other scans may have seen more of them.
--
-- `flows` looks for flows, in organisations that have several, of all of their endpoints: from where
-- the last claim of that organisation ended ($7, by organisation: an endpoint, and the first flow
-- that comes) round to there. All organisations advance a step at a time, each until it has a flow
-- for every job of its share, has come full circle, or has used its part of $9 probes.
--
-- $10 selects flows under a limit, or the others. `pairs` knows where a whole organisation or a whole
-- endpoint is under a limit. An organisation that has limits on flows or on runs is `mixed`: `flows`
-- finds out, and it takes up no room until then. A run that is under a limit
-- (core/schema/0005_limits.sql) is one line, however many flows it has: the scan continues right
-- behind all of them.
--
-- `listed` divides the room equally over organisations, and the share of each equally over its flows.
-- Where $8 has the organisations that hold a slot, those are left out, and each of the others gets one
-- job. `ended` is where the next claim continues: the lane's organisation (no endpoint), and a flow
-- for each organisation that has several. So everybody has a turn, even with more organisations or
-- flows than room, and nobody gets an extra job twice in a row.
--
-- x || chr(1) is the first text after x.
asked AS MATERIALIZED (
    SELECT a.lane::job_lane AS lane, a.room, a.after_org COLLATE "C" AS after_org, a.turns, a.holders,
           greatest($9::integer / greatest(cardinality($3::text[]), 1), 8) AS looks_max,
           -- Once per claim: most deployments have no limit.
           EXISTS (SELECT FROM concurrency_limits) AS any_limits,
           EXISTS (SELECT FROM run_limits) AS any_run_limits
    FROM unnest($1::text[], $2::integer[], $6::text[], $7::jsonb[], $8::jsonb[])
        AS a (lane, room, after_org, turns, holders)
    WHERE a.room > 0
),
served AS (
    SELECT s.endpoint COLLATE "C" AS endpoint, s.timeout
    FROM unnest($3::text[], $4::double precision[]) AS s (endpoint, timeout)
),
pairs AS (
    SELECT a.lane, a.room, a.holders IS NOT NULL AS newcomers, s.endpoint, a.after_org = '' AS wrapped,
           (a.after_org || CASE a.after_org WHEN '' THEN '' ELSE chr(1) END) COLLATE "C" AS from_org,
           '' COLLATE "C" AS from_flow, NULL::text COLLATE "C" AS org_id,
           NULL::text COLLATE "C" AS flow, false AS wanted, false AS limited, false AS mixed,
           false AS again, 0 AS looked, 0 AS found, false AS gone_round, false AS cut
    FROM asked AS a
    CROSS JOIN served AS s
    UNION ALL
    SELECT p.lane, p.room, p.newcomers, p.endpoint, p.wrapped OR next.org_id IS NULL,
           CASE
               WHEN next.goes_on THEN next.org_id
               WHEN next.org_id IS NOT NULL THEN next.org_id || chr(1)
               ELSE ''
           END,
           CASE WHEN next.goes_on THEN next.flow || chr(1) ELSE '' END,
           next.org_id, next.flow, next.wanted, next.limited, next.mixed, next.again,
           p.looked + (next.org_id IS NOT NULL)::integer,
           p.found + (next.goes_on IS TRUE)::integer,
           p.wrapped AND next.org_id IS NULL,
           next.org_id IS NOT NULL AND p.looked + 1 >= a.looks_max
    FROM pairs AS p
    JOIN asked AS a ON a.lane = p.lane
    LEFT JOIN LATERAL (
        SELECT ready.org_id, ready.flow, wanted, limited, mixed, again,
               wanted AND NOT mixed AND NOT again AS goes_on
        FROM (
            SELECT j.org_id, j.flow
            FROM jobs AS j
            WHERE j.state = 'queued' AND j.lane = p.lane AND j.endpoint = p.endpoint
              AND (j.org_id, j.flow) >= (p.from_org, p.from_flow)
            ORDER BY j.org_id, j.flow
            LIMIT 1
        ) AS ready
        CROSS JOIN LATERAL (
            SELECT a.any_limits AND (
                       EXISTS (
                           SELECT FROM concurrency_limits AS c
                           WHERE c.org_id = ready.org_id AND c.scope = 'org'
                       )
                       OR EXISTS (
                           SELECT FROM concurrency_limits AS c
                           WHERE c.org_id = ANY (ARRAY[ready.org_id, '*']) AND c.scope = 'endpoint'
                             AND c.name = p.endpoint
                       )
                   ) AS limited,
                   a.any_run_limits AND (
                       SELECT true FROM run_limits AS r WHERE r.org_id = ready.org_id LIMIT 1
                   ) IS NOT NULL
                   OR a.any_limits AND EXISTS (
                       SELECT FROM concurrency_limits AS c
                       WHERE c.org_id = ready.org_id AND c.scope = 'flow'
                   ) AS mixed,
                   (ready.org_id = p.org_id) IS TRUE AS again
            OFFSET 0  -- asked once for each organisation, and not wherever it is named
        ) AS limits
        CROSS JOIN LATERAL (
            SELECT CASE WHEN $10::boolean THEN limited OR mixed ELSE NOT limited END
                   AND (a.holders ? ready.org_id) IS NOT TRUE
        ) AS choice (wanted)
        WHERE NOT p.wrapped OR a.after_org = '' OR ready.org_id <= a.after_org
    ) AS next ON true
    -- When the room is used up, one more probe: whether the last organisation has another flow.
    WHERE NOT p.gone_round AND NOT p.cut
      AND (p.found < p.room OR p.found = p.room AND p.from_flow <> '' OR $10::boolean)
),
cuts AS MATERIALIZED (
    SELECT p.lane, p.wrapped, p.org_id FROM pairs AS p WHERE p.cut
),
orgs AS MATERIALIZED (
    SELECT g.lane, g.room, g.newcomers, g.org_id, g.endpoints, g.limited, g.flow, g.mixed,
           g.several OR cardinality(g.endpoints) > 1 AS several,
           row_number() OVER lane_in_order AS number,
           count(*) OVER (PARTITION BY g.lane) AS org_count,
           count(*) FILTER (WHERE NOT g.mixed) OVER (PARTITION BY g.lane) AS certain_count
    FROM (
        SELECT p.lane, p.room, p.newcomers, p.wrapped, p.org_id, min(p.flow) AS flow,
               bool_or(p.mixed) AS mixed,
               array_agg(p.endpoint ORDER BY p.endpoint) FILTER (WHERE NOT p.again) AS endpoints,
               array_agg(p.endpoint) FILTER (WHERE p.mixed AND p.limited) AS limited,
               bool_or(p.again OR p.mixed OR p.cut) AS several
        FROM pairs AS p
        WHERE p.wanted
        GROUP BY p.lane, p.room, p.newcomers, p.wrapped, p.org_id
    ) AS g
    WHERE NOT EXISTS (
        SELECT FROM cuts AS c WHERE c.lane = g.lane AND (c.wrapped, c.org_id) < (g.wrapped, g.org_id)
    )
    WINDOW lane_in_order AS (PARTITION BY g.lane ORDER BY g.wrapped, g.org_id)
),
flows AS (
    SELECT o.lane, o.room, o.newcomers, o.number, o.org_id, o.mixed, o.limited,
           array(
               SELECT e.endpoint FROM unnest(o.endpoints) AS e (endpoint)
               ORDER BY (e.endpoint < turn.endpoint) IS TRUE, e.endpoint
           ) || CASE WHEN turn.is_here THEN ARRAY[turn.endpoint] END AS endpoints,
           CASE WHEN turn.is_here THEN turn.flow END AS turn_flow,
           $9::integer / o.org_count AS looks_max,
           (o.room - 1) / least(o.room, greatest(o.certain_count, 1)) + 1 AS flows_max,
           1 AS stretch, NULL::text COLLATE "C" AS endpoint, NULL::text COLLATE "C" AS flow,
           NULL::text COLLATE "C" AS place, false AS of_run, false AS wanted, 0 AS looked, 0 AS found
    FROM orgs AS o
    JOIN asked AS a ON a.lane = o.lane
    CROSS JOIN LATERAL (
        SELECT t.endpoint, t.flow, t.endpoint = ANY (o.endpoints) AS is_here
        FROM (
            SELECT (a.turns -> o.org_id ->> 0) COLLATE "C" AS endpoint,
                   (a.turns -> o.org_id ->> 1) COLLATE "C" AS flow
        ) AS t
    ) AS turn
    WHERE o.several
    UNION ALL
    SELECT f.lane, f.room, f.newcomers, f.number, f.org_id, f.mixed, f.limited, f.endpoints,
           f.turn_flow, f.looks_max, f.flows_max, f.stretch + (next.flow IS NULL)::integer, f.endpoints[f.stretch],
           next.flow, next.place, next.of_run, next.wanted,
           f.looked + (next.flow IS NOT NULL)::integer, f.found + (next.wanted IS TRUE)::integer
    FROM flows AS f
    LEFT JOIN LATERAL (
        SELECT ready.flow, of_run,
               CASE WHEN of_run THEN split_part(ready.flow, '/', 1) || '0'
                    ELSE ready.flow || chr(1) END AS place,
               NOT f.mixed OR $10::boolean = (
                   of_run
                   OR (f.endpoints[f.stretch] = ANY (f.limited)) IS TRUE
                   OR EXISTS (
                       SELECT FROM concurrency_limits AS c
                       WHERE c.org_id = f.org_id AND c.scope = 'flow' AND c.name = ready.flow
                   )
               ) AS wanted
        FROM (
            SELECT j.flow
            FROM jobs AS j
            WHERE j.state = 'queued' AND j.lane = f.lane AND j.endpoint = f.endpoints[f.stretch]
              AND j.org_id = f.org_id
              AND j.flow >= coalesce(f.place, CASE WHEN f.stretch = 1 THEN f.turn_flow END, '')
            ORDER BY j.flow
            LIMIT 1
        ) AS ready
        CROSS JOIN LATERAL (
            SELECT f.mixed AND (
                SELECT true FROM run_limits AS r
                WHERE r.org_id = f.org_id AND r.run = split_part(ready.flow, '/', 1)
            ) IS NOT NULL
            OFFSET 0
        ) AS limited (of_run)
        WHERE f.turn_flow IS NULL OR f.stretch < cardinality(f.endpoints) OR ready.flow < f.turn_flow
    ) AS next ON true
    WHERE f.stretch <= cardinality(f.endpoints) AND f.looked < greatest(f.looks_max, 1)
      AND (f.found < f.flows_max OR $10::boolean)
),
listed AS MATERIALIZED (
    SELECT s.lane, s.room, s.newcomers, s.endpoint, s.org_id, s.flow, s.of_run, s.wanted, s.place,
           s.found, s.org_rank, s.org_count,
           -- How many jobs to take.
           CASE WHEN s.wanted AND s.org_rank <= s.room AND s.found <= s.share THEN
               s.share / least(s.share, s.flow_count)
               + (s.found <= s.share % least(s.share, s.flow_count))::integer
           ELSE 0 END AS quota,
           -- Whether the organisation's next turn begins right behind this line.
           s.several AND CASE
               WHEN s.is_cut AND (s.flow_count < s.share OR $10::boolean)
                   THEN s.looked = s.look_count
               WHEN $10::boolean OR s.flow_count = 0 OR s.org_rank > s.room THEN false
               WHEN s.flow_count >= s.share THEN s.wanted AND s.found = s.share
               ELSE s.wanted
                   AND s.found = coalesce(nullif(s.share % s.flow_count, 0), s.flow_count)
           END AS is_turn
    FROM (
        SELECT r.*, CASE WHEN r.newcomers OR r.flow_count = 0 THEN 1 ELSE
                   r.room / least(r.room, r.org_count)
                   + (r.org_rank <= r.room % least(r.room, r.org_count))::integer
               END AS share
        FROM (
            SELECT l.*,
                   max(l.found) OVER of_org AS flow_count, max(l.looked) OVER of_org AS look_count,
                   bool_or(l.cut) OVER of_org AS is_cut,
                   count(*) FILTER (WHERE l.wanted AND l.found = 1)
                       OVER (PARTITION BY l.lane ORDER BY l.number) AS org_rank,
                   count(*) FILTER (WHERE l.wanted AND l.found = 1)
                       OVER (PARTITION BY l.lane) AS org_count
            FROM (
                SELECT o.lane, o.room, o.newcomers, o.number, o.org_id, false AS several,
                       o.endpoints[1] AS endpoint, o.flow, NULL AS place, false AS of_run,
                       true AS wanted, 1 AS looked, 1 AS found, false AS cut
                FROM orgs AS o
                WHERE NOT o.several
                UNION ALL
                SELECT f.lane, f.room, f.newcomers, f.number, f.org_id, true, f.endpoint, f.flow,
                       f.place, f.of_run, f.wanted, f.looked, f.found, f.looked >= f.looks_max
                FROM flows AS f
                WHERE f.flow IS NOT NULL
            ) AS l
            WINDOW of_org AS (PARTITION BY l.lane, l.number)
        ) AS r
    ) AS s
),
ended AS (
    -- All organisations were seen, and there is more room: continue after the last one that was given
    -- one job more than the others.
    SELECT l.lane, l.org_id, NULL AS endpoint, NULL AS flow
    FROM listed AS l
    WHERE NOT $10::boolean AND l.wanted AND l.found = 1
      AND l.org_rank = CASE
          WHEN l.org_count >= l.room THEN l.room
          WHEN NOT EXISTS (SELECT FROM cuts AS c WHERE c.lane = l.lane) THEN l.room % l.org_count
      END
    UNION ALL
    (
        SELECT DISTINCT ON (c.lane) c.lane, c.org_id, NULL, NULL
        FROM cuts AS c
        WHERE $10::boolean
           OR NOT EXISTS (SELECT FROM listed AS l WHERE l.lane = c.lane AND l.org_count >= l.room)
        ORDER BY c.lane, c.wrapped, c.org_id
    )
    UNION ALL
    SELECT l.lane, l.org_id, l.endpoint, l.place
    FROM listed AS l
    WHERE l.is_turn
)
