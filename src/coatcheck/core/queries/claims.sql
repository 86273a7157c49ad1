-- name: ready_flows
-- The flows to claim jobs from, organisations first: common table expressions included by
-- exchange and claim_limited, which share $1 to $10. Gives `served`, `listed` and `ended`.
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

-- name: exchange
-- Complete jobs and claim new ones: one statement, one round trip, one commit.
--
-- Transitions: held -> completed, queued -> dispatching.
-- Merged to save a round trip and a commit per round; docs/adr/0004 has the gain.
--
-- Complete. Fenced by the lease alone: it is NULL unless the job is held, and new for every
-- claim. Naming the state as well would make the planner leave the primary key.
--
-- Claim. Each flow gives as many jobs as ready_flows allots to it; the rows are locked in one
-- MATERIALIZED CTE, because a LIMIT inside an IN subquery may be re-run and claim too many.
-- Flows under a concurrency limit are left to claim_limited. The update finds the rows by ctid:
-- this very statement has locked them, so they cannot move. A claim that began, and was planned,
-- while a job was being created sees it, yet has the earlier now().
--
-- $1 lanes, $2 room in each   $3 endpoints, $4 timeout of each   $5 lease
-- $6 the organisation that each lane's scan starts after   $7 where those with several flows continue
-- $8 organisations that hold a slot, for a lane that has room for others only
-- $9 organisations, and flows, to look at in a lane, at most   $10 false
-- $11-$16 completed: org, id, lease, result, seconds since start, bytes of its payload
-- $17 seconds to keep by default
--
-- Returns rows of three kinds: claimed jobs, accepted completions (only org_id and id set), and
-- where the next claim continues (no id).
WITH RECURSIVE /* include claims/ready_flows */,
picked AS MATERIALIZED (
    SELECT ready.tid, l.org_rank::integer AS rank
    FROM listed AS l
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.lane = l.lane AND j.endpoint = l.endpoint
          AND j.org_id = l.org_id AND j.flow = l.flow
        ORDER BY j.run_at, j.id
        LIMIT l.quota
        FOR UPDATE SKIP LOCKED
    ) AS ready
    WHERE l.quota > 0
),
changed AS (
    UPDATE jobs AS j
    SET /* include jobs/set_end */,
        result = next.result, error_code = NULL, error_message = NULL,
        started_at = coalesce(j.started_at, now() - next.ran_seconds * interval '1 second'),
        run_seconds = j.run_seconds + next.ran_seconds
    FROM (
        SELECT c.*, 'completed'::job_state AS state, $17::integer AS keep_seconds
        FROM unnest(
            $11::text[], $12::uuid[], $13::bigint[], $14::bytea[], $15::double precision[],
            $16::integer[]
        ) AS c (org_id, id, lease, result, ran_seconds, payload_bytes)
    ) AS next
    WHERE j.org_id = next.org_id AND j.id = next.id AND j.lease = next.lease
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              next.payload_bytes, octet_length(next.result) AS result_bytes, j.run_seconds,
              j.run_id, j.webhook, NULL AS error_code, NULL AS error_message,
              old.state AS previous
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
              j.timeout_seconds, j.request_id, j.traceparent, p.rank, j.run_id, j.webhook,
              date_part('epoch', now() - greatest(j.run_at, j.created_at))::real AS waited
),
moved AS (
    SELECT c.org_id, c.id, c.state, c.previous, c.endpoint, c.flow, c.attempts, c.run_id, c.webhook,
           c.error_code
    FROM changed AS c
    UNION ALL
    SELECT c.org_id, c.id, 'dispatching', 'queued', c.endpoint, c.flow, c.attempt, c.run_id,
           c.webhook, NULL
    FROM claimed AS c
),
attempts AS (
    /* include jobs/no_attempts */
),
/* include jobs/ended */
SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.payload, c.attempt, c.failures, c.unreachables,
       c.timeout_seconds, c.request_id, c.rank, c.traceparent, c.waited
FROM claimed AS c
UNION ALL
SELECT c.org_id, c.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM changed AS c
UNION ALL
SELECT e.org_id, NULL, e.lane::text, e.endpoint, e.flow, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL
FROM ended AS e

-- name: claim_limited
-- Claim jobs that are under a limit: of flows under a concurrency limit, and of runs with limits.
-- queued -> dispatching.
--
-- Exact with any number of workers: its transaction holds the advisory lock of lock_limits
-- from before this statement's snapshot until its commit, so no two of these see the same permit
-- or the same token free. A permit in use is a held job, counted here and stored nowhere. A token
-- is a moment in time (core/schema/0005_limits.sql), and each start moves it on. Starts are counted,
-- so a retry takes a token as well, and a released claim does not return it.
--
-- Limits overlap (two flows of one org share its limit), so candidates are ordered round robin over
-- organisations, within one over its lines and within a run over its flows, and numbered within
-- every limit that applies; a candidate above any limit is left. The first in order is number 1
-- everywhere, so a pass with a free permit always claims a job.
--
-- A lottery decides which organisation comes first, among those that could start something now, and
-- which of its lines. A cursor would not be fair here: permits come back in an order of their own,
-- and it may pass over the same line each time. An organisation's lot is a hash of its name and the
-- lease, which is new for every claim: so it has one, however many lines it has.
--
-- A run may have ten thousand flows. Those that have used tokens lately are found by the time of
-- their next one: `due`, longest waiting first. The others are found by a scan of the index from
-- where the last one ended, past at most $12 waiting flows: `looks`. A scan of all flows that found
-- nothing is followed by a pause that is long compared to its cost. So flows that wait for a token
-- are not scanned again and again, and those that never had one come first. A flow that is due and
-- has no work is deleted from run_tokens.
--
-- $1 lanes, $2 room in each   $3 endpoints, $4 timeout of each   $5 lease
-- $6 the organisation that each lane's scan starts after   $7 where those with several lines continue
-- $8 organisations that hold a slot, for a lane that has room for others only
-- $9 organisations, and lines, to look at in a lane, at most   $10 true
-- $11 seconds that a rate may be ahead   $12 waiting flows to pass in a run, at most
--
-- Returns rows of three kinds: claimed jobs, (no id) where the next claim continues, and (no lane) in
-- how many seconds, as timeout_seconds, there will be a token or a reason to scan again.
WITH RECURSIVE /* include claims/ready_flows */,
held AS MATERIALIZED (
    SELECT j.endpoint, j.org_id, split_part(j.flow, '/', 1) AS run, count(*) AS jobs
    FROM jobs AS j
    WHERE j.lease IS NOT NULL
    GROUP BY j.endpoint, j.org_id, split_part(j.flow, '/', 1)
),
held_flows AS MATERIALIZED (
    SELECT j.org_id, j.flow, count(*) AS jobs
    FROM jobs AS j
    WHERE j.lease IS NOT NULL
    GROUP BY j.org_id, j.flow
),
lines AS MATERIALIZED (
    SELECT DISTINCT ON (l.lane, l.endpoint, l.org_id, name)
           l.lane, l.room, l.newcomers, l.endpoint, l.org_id, name AS line, l.of_run,
           r.per_second, r.key_per_second, t.in_step_at, coalesce(t.looked_to, '') AS looked_to,
           coalesce(t.next_look_at, '-infinity') AS next_look_at,
           (
               SELECT min(c.held_max - (
                   SELECT coalesce(sum(h.jobs), 0) FROM held AS h WHERE h.org_id = c.org_id
               ))
               FROM concurrency_limits AS c
               WHERE c.org_id = l.org_id AND c.scope = 'org'
           )::integer AS org_free,
           (
               SELECT c.held_max - (
                   SELECT coalesce(sum(h.jobs), 0) FROM held AS h
                   WHERE h.endpoint = c.name AND h.org_id = c.org_id
               )
               FROM concurrency_limits AS c
               WHERE c.org_id = l.org_id AND c.scope = 'endpoint' AND c.name = l.endpoint
           )::integer AS endpoint_free,
           (
               SELECT c.held_max - (
                   SELECT coalesce(sum(h.jobs), 0) FROM held AS h WHERE h.endpoint = c.name
               )
               FROM concurrency_limits AS c
               WHERE c.org_id = '*' AND c.scope = 'endpoint' AND c.name = l.endpoint
           )::integer AS shared_free,
           r.held_max - CASE WHEN r.held_max > 0 THEN (
               SELECT coalesce(sum(h.jobs), 0) FROM held AS h
               WHERE h.org_id = r.org_id AND h.run = r.run
           ) ELSE 0 END::integer AS run_free,
           CASE WHEN NOT l.of_run THEN (
               SELECT c.held_max - (
                   SELECT coalesce(sum(h.jobs), 0) FROM held_flows AS h
                   WHERE h.org_id = c.org_id AND h.flow = c.name
               )
               FROM concurrency_limits AS c
               WHERE c.org_id = l.org_id AND c.scope = 'flow' AND c.name = l.flow
           ) END::integer AS flow_free,
           greatest(0, 1 + floor(r.per_second * ($11::double precision - greatest(
               0, extract(epoch FROM t.in_step_at - statement_timestamp())::double precision
           ))))::integer AS run_tokens
    FROM listed AS l
    CROSS JOIN LATERAL (
        SELECT CASE WHEN l.of_run THEN split_part(l.flow, '/', 1) ELSE l.flow END
    ) AS named (name)
    LEFT JOIN run_limits AS r ON l.of_run AND r.org_id = l.org_id AND r.run = name
    LEFT JOIN run_tokens AS t ON l.of_run AND t.org_id = l.org_id AND t.run = name AND t.flow = ''
    WHERE l.wanted
),
unheld_lines AS MATERIALIZED (
    SELECT l.*
    FROM lines AS l
    WHERE least(l.org_free, l.endpoint_free, l.shared_free, l.run_free, l.flow_free, 1) > 0
),
open_lines AS MATERIALIZED (
    SELECT l.*, random() AS draw, hashtextextended(l.org_id, $5::bigint) AS org_draw,
           least(
               l.room, l.org_free, l.endpoint_free, l.shared_free, l.run_free, l.flow_free,
               CASE WHEN l.per_second IS NOT NULL THEN l.run_tokens END
           ) AS free
    FROM unheld_lines AS l
    WHERE l.per_second IS NULL OR l.run_tokens > 0
),
shares AS MATERIALIZED (
    SELECT s.*, least(
               s.free, (s.org_share - 1) / least(s.org_share, s.line_count) + 1
           )::integer AS share
    FROM (
        SELECT c.*, CASE WHEN c.newcomers THEN 1 ELSE
                   (c.room - 1) / least(c.room, max(c.org_lot) OVER (PARTITION BY c.lane)) + 1
               END AS org_share
        FROM (
            SELECT l.*, dense_rank() OVER (
                       PARTITION BY l.lane ORDER BY l.org_draw, l.org_id
                   ) AS org_lot,
                   count(*) OVER (PARTITION BY l.lane, l.org_id) AS line_count
            FROM open_lines AS l
        ) AS c
    ) AS s
    WHERE s.of_run
),
due AS MATERIALIZED (
    SELECT r.*, t.flow, t.in_step_at AS key_in_step_at, (
               -- Not EXISTS, which may be answered by reading all of them into a table.
               SELECT true FROM jobs AS j
               WHERE j.state = 'queued' AND j.lane = r.lane AND j.endpoint = r.endpoint
                 AND j.org_id = r.org_id AND j.flow = t.flow
               LIMIT 1
           ) IS NOT NULL AS has_work
    FROM shares AS r
    CROSS JOIN LATERAL (
        SELECT t.flow, t.in_step_at
        FROM run_tokens AS t
        WHERE t.org_id = r.org_id AND t.run = r.line AND t.flow <> ''
          AND t.in_step_at <= statement_timestamp() + $11::double precision * interval '1 second'
        ORDER BY t.in_step_at
        LIMIT r.share + 20
    ) AS t
    WHERE r.key_per_second IS NOT NULL
),
looks AS MATERIALIZED (
    SELECT r.*, look.flow, look.is_new, look.wrapped, look.gone_round, look.steps, look.found
    FROM shares AS r
    CROSS JOIN LATERAL (
        WITH RECURSIVE look AS (
            SELECT r.looked_to AS flow, false AS is_new, r.looked_to = '' AS wrapped,
                   false AS gone_round, 0 AS steps, 0 AS found
            UNION ALL
            SELECT coalesce(next.flow, ''), coalesce(next.is_new, false),
                   k.wrapped OR next.flow IS NULL, k.wrapped AND next.flow IS NULL,
                   k.steps + 1, k.found + coalesce(next.is_new, false)::integer
            FROM look AS k
            LEFT JOIN LATERAL (
                SELECT ready.flow, r.key_per_second IS NULL OR (
                           SELECT true FROM run_tokens AS t
                           WHERE t.org_id = r.org_id AND t.run = r.line AND t.flow = ready.flow
                       ) IS NULL AS is_new
                FROM (
                    SELECT j.flow
                    FROM jobs AS j
                    WHERE j.state = 'queued' AND j.lane = r.lane AND j.endpoint = r.endpoint
                      AND j.org_id = r.org_id AND j.flow >= r.line AND j.flow < r.line || '0'
                      AND j.flow > k.flow
                    ORDER BY j.flow
                    LIMIT 1
                ) AS ready
                WHERE NOT k.wrapped OR r.looked_to = '' OR ready.flow <= r.looked_to
            ) AS next ON true
            WHERE NOT k.gone_round AND k.steps - k.found < $12::integer
              AND k.found < r.share
        )
        SELECT * FROM look WHERE steps > 0
    ) AS look
    WHERE r.key_per_second IS NULL OR r.next_look_at <= statement_timestamp()
),
looked AS (
    SELECT k.org_id, k.line, k.per_second, k.in_step_at, k.looked_to, k.next_look_at,
           k.now_looked_to, k.found < k.share AND NOT k.is_round AS unfinished,
           CASE WHEN k.found = 0 AND k.is_round AND k.key_per_second IS NOT NULL THEN
               statement_timestamp() + CASE WHEN k.looked_to = '' THEN k.steps
                   ELSE 4 * $12::integer END * interval '2.5 milliseconds'
           END AS now_next_look_at
    FROM (
        SELECT DISTINCT ON (k.lane, k.endpoint, k.org_id, k.line) k.*, is_round,
               CASE WHEN k.found < k.share AND is_round THEN '' ELSE k.flow END AS now_looked_to
        FROM looks AS k
        -- A scan that began behind the first flow and has passed the last one completes the round
        -- with the flows before its start.
        CROSS JOIN LATERAL (SELECT k.gone_round OR k.wrapped AND k.looked_to <> '') AS r (is_round)
        ORDER BY k.lane, k.endpoint, k.org_id, k.line, k.steps DESC
    ) AS k
),
flows_at_hand AS MATERIALIZED (
    SELECT o.lane, o.room, o.newcomers, o.endpoint, o.org_id, o.line, o.line AS flow, o.of_run,
           o.org_draw, o.draw, o.free, o.per_second, o.key_per_second, o.in_step_at, o.looked_to, o.next_look_at,
           NULL::timestamptz AS key_in_step_at, o.org_free, o.endpoint_free, o.shared_free,
           o.run_free, o.run_tokens, o.flow_free
    FROM open_lines AS o
    WHERE NOT o.of_run
    UNION ALL
    SELECT f.lane, f.room, f.newcomers, f.endpoint, f.org_id, f.line, f.flow, true, f.org_draw,
           f.draw, f.free, f.per_second, f.key_per_second, f.in_step_at, f.looked_to, f.next_look_at,
           f.key_in_step_at, f.org_free, f.endpoint_free, f.shared_free, f.run_free, f.run_tokens,
           CASE WHEN EXISTS (SELECT FROM concurrency_limits AS c WHERE c.scope = 'flow') THEN (
               SELECT c.held_max - (
                   SELECT coalesce(sum(h.jobs), 0) FROM held_flows AS h
                   WHERE h.org_id = c.org_id AND h.flow = c.name
               )
               FROM concurrency_limits AS c
               WHERE c.org_id = f.org_id AND c.scope = 'flow' AND c.name = f.flow
           ) END::integer
    FROM (
        SELECT d.lane, d.room, d.newcomers, d.endpoint, d.org_id, d.line, d.flow, d.org_draw,
               d.draw, d.free,
               d.per_second, d.key_per_second, d.in_step_at, d.looked_to, d.next_look_at,
               d.key_in_step_at, d.org_free, d.endpoint_free, d.shared_free, d.run_free,
               d.run_tokens
        FROM due AS d
        WHERE d.has_work
        UNION ALL
        SELECT k.lane, k.room, k.newcomers, k.endpoint, k.org_id, k.line, k.flow, k.org_draw,
               k.draw, k.free,
               k.per_second, k.key_per_second, k.in_step_at, k.looked_to, k.next_look_at,
               NULL, k.org_free, k.endpoint_free, k.shared_free, k.run_free, k.run_tokens
        FROM looks AS k
        WHERE k.is_new
    ) AS f
),
open_flows AS MATERIALIZED (
    SELECT f.*,
           CASE WHEN f.key_per_second IS NOT NULL THEN
               greatest(0, 1 + floor(f.key_per_second * ($11::double precision - greatest(
                   0,
                   extract(epoch FROM f.key_in_step_at - statement_timestamp())::double precision
               ))))::integer
           END AS key_tokens,
           count(*) OVER (PARTITION BY f.lane, f.endpoint, f.org_id, f.line) AS flow_count,
           dense_rank() OVER (PARTITION BY f.lane ORDER BY f.org_draw, f.org_id) AS org_lot,
           dense_rank() OVER (PARTITION BY f.lane, f.org_id ORDER BY f.draw) AS lot
    FROM flows_at_hand AS f
    WHERE least(f.flow_free, 1) > 0
),
shared_out AS MATERIALIZED (
    SELECT f.*, least(f.free, (f.org_share - 1) / least(f.org_share, f.line_count) + 1) AS share
    FROM (
        SELECT o.*, max(o.lot) OVER (PARTITION BY o.lane, o.org_id) AS line_count,
               CASE WHEN o.newcomers THEN 1 ELSE
                   (o.room - 1) / least(o.room, max(o.org_lot) OVER (PARTITION BY o.lane)) + 1
               END AS org_share
        FROM open_flows AS o
    ) AS f
    WHERE f.org_lot <= f.room AND f.lot <= f.org_share
),
candidates AS MATERIALIZED (
    SELECT f.*, ready.tid, ready.run_at, ready.id
    FROM shared_out AS f
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.run_at, j.id
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.lane = f.lane AND j.endpoint = f.endpoint
          AND j.org_id = f.org_id AND j.flow = f.flow
        ORDER BY j.run_at, j.id
        LIMIT least(f.flow_free, f.key_tokens, (f.share + f.flow_count - 1) / f.flow_count)
        FOR UPDATE SKIP LOCKED
    ) AS ready
),
in_flow AS (
    SELECT c.*, row_number() OVER (
        PARTITION BY c.lane, c.endpoint, c.org_id, c.flow ORDER BY c.run_at, c.id
    ) AS position_in_flow
    FROM candidates AS c
),
in_line AS (
    SELECT i.*, row_number() OVER (
        PARTITION BY i.lane, i.endpoint, i.org_id, i.line
        ORDER BY i.position_in_flow, i.key_in_step_at NULLS FIRST, i.flow
    ) AS position
    FROM in_flow AS i
),
in_organisation AS (
    SELECT i.*, row_number() OVER (
        PARTITION BY i.lane, i.org_id ORDER BY i.position, i.lot
    ) AS position_in_org
    FROM in_line AS i
),
in_order AS (
    SELECT i.*,
           row_number() OVER (ORDER BY i.lane, i.position_in_org, i.org_lot) AS turn,
           row_number() OVER (PARTITION BY i.lane ORDER BY i.position_in_org, i.org_lot)
               AS turn_in_lane
    FROM in_organisation AS i
    WHERE i.position_in_org <= i.org_share
),
permits AS (
    SELECT o.*,
           row_number() OVER (PARTITION BY o.org_id ORDER BY o.turn) AS in_org,
           row_number() OVER (PARTITION BY o.endpoint, o.org_id ORDER BY o.turn) AS in_endpoint,
           row_number() OVER (PARTITION BY o.endpoint ORDER BY o.turn) AS in_shared,
           row_number() OVER (PARTITION BY o.org_id, o.line ORDER BY o.turn) AS in_run,
           row_number() OVER (PARTITION BY o.org_id, o.flow ORDER BY o.turn) AS number_in_flow
    FROM in_order AS o
    WHERE o.turn_in_lane <= o.room
),
picked AS MATERIALIZED (
    SELECT p.tid, p.turn::integer AS rank, p.org_id, p.line, p.flow, p.of_run, p.per_second,
           p.key_per_second, p.in_step_at, p.key_in_step_at, p.looked_to, p.next_look_at
    FROM permits AS p
    WHERE (p.in_org <= p.org_free) IS NOT FALSE
      AND (p.in_endpoint <= p.endpoint_free) IS NOT FALSE
      AND (p.in_shared <= p.shared_free) IS NOT FALSE
      AND (p.in_run <= p.run_free) IS NOT FALSE
      AND (p.number_in_flow <= p.flow_free) IS NOT FALSE
      AND (p.per_second IS NULL OR p.in_run <= p.run_tokens)
      AND (p.number_in_flow <= p.key_tokens) IS NOT FALSE
),
spent AS (
    SELECT m.org_id, m.line AS run, '' AS flow,
           greatest(max(m.in_step_at), statement_timestamp())
               + coalesce(ceil(1e6 * sum(m.starts) / max(m.per_second)), 0)
               * interval '1 microsecond' AS in_step_at,
           coalesce(max(m.now_looked_to), max(m.looked_to)) AS looked_to,
           coalesce(max(m.now_next_look_at), max(m.next_look_at)) AS next_look_at
    FROM (
        SELECT p.org_id, p.line, p.per_second, p.in_step_at, p.looked_to, p.next_look_at,
               NULL AS now_looked_to, NULL AS now_next_look_at, 1 AS starts
        FROM picked AS p
        WHERE p.of_run
        UNION ALL
        SELECT k.org_id, k.line, k.per_second, k.in_step_at, k.looked_to, k.next_look_at,
               k.now_looked_to, k.now_next_look_at, 0
        FROM looked AS k
    ) AS m
    GROUP BY m.org_id, m.line
    HAVING max(m.now_looked_to) <> max(m.looked_to) OR max(m.now_next_look_at) IS NOT NULL
        OR sum(m.starts) * max(m.per_second) > 0
    UNION ALL
    SELECT p.org_id, p.line, p.flow,
           greatest(max(p.key_in_step_at), statement_timestamp())
               + ceil(1e6 * count(*) / max(p.key_per_second)) * interval '1 microsecond',
           '', '-infinity'
    FROM picked AS p
    WHERE p.key_per_second IS NOT NULL
    GROUP BY p.org_id, p.line, p.flow
),
noted AS (
    INSERT INTO run_tokens (org_id, run, flow, in_step_at, looked_to, next_look_at)
    SELECT s.org_id, s.run, s.flow, s.in_step_at, s.looked_to, s.next_look_at FROM spent AS s
    ON CONFLICT (org_id, run, flow) DO UPDATE
    SET in_step_at = excluded.in_step_at, looked_to = excluded.looked_to,
        next_look_at = excluded.next_look_at
),
forgotten AS (
    DELETE FROM run_tokens AS t
    USING (
        SELECT d.org_id, d.line, d.flow
        FROM due AS d
        WHERE d.key_in_step_at <= statement_timestamp()
        GROUP BY d.org_id, d.line, d.flow
        HAVING NOT bool_or(d.has_work)
    ) AS idle
    WHERE t.org_id = idle.org_id AND t.run = idle.line AND t.flow = idle.flow
),
next_look AS (
    SELECT min(n.at) AS at
    FROM (
        SELECT u.in_step_at - $11::double precision * interval '1 second' AS at
        FROM unheld_lines AS u
        WHERE u.per_second IS NOT NULL AND u.run_tokens = 0
        UNION ALL
        SELECT (
            SELECT t.in_step_at - $11::double precision * interval '1 second'
            FROM run_tokens AS t
            WHERE t.org_id = o.org_id AND t.run = o.line AND t.flow <> ''
              AND t.in_step_at
                  > statement_timestamp() + $11::double precision * interval '1 second'
            ORDER BY t.in_step_at
            LIMIT 1
        )
        FROM shares AS o
        WHERE o.key_per_second IS NOT NULL
        UNION ALL
        SELECT r.next_look_at FROM shares AS r
        WHERE r.key_per_second IS NOT NULL AND r.next_look_at > statement_timestamp()
        UNION ALL
        -- They were ahead of others, and are deleted now or in a moment.
        SELECT statement_timestamp() FROM due AS d WHERE NOT d.has_work
        UNION ALL
        SELECT statement_timestamp() FROM looked AS k WHERE k.unfinished
    ) AS n
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
              j.timeout_seconds, j.request_id, j.traceparent, p.rank, j.run_id, j.webhook,
              date_part('epoch', now() - greatest(j.run_at, j.created_at))::real AS waited
),
moved AS (
    SELECT c.org_id, c.id, 'dispatching'::job_state AS state, 'queued'::job_state AS previous,
           c.endpoint, c.flow, c.attempt AS attempts, c.run_id, c.webhook, NULL AS error_code
    FROM claimed AS c
),
notified AS (
    /* include webhooks/write_deliveries_from_moved */
)
SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.payload, c.attempt, c.failures, c.unreachables,
       c.timeout_seconds, c.request_id, c.rank, c.traceparent, c.waited
FROM claimed AS c
UNION ALL
SELECT e.org_id, NULL, e.lane::text, e.endpoint, e.flow, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL
FROM ended AS e
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       extract(epoch FROM n.at - statement_timestamp())::real, NULL, NULL, NULL, NULL
FROM next_look AS n
WHERE n.at IS NOT NULL

-- name: mark_started
-- Show that handlers are running: dispatching -> processing, for jobs that did not end at once.
--
-- Returns every job still held under the lease given, marked or not: a missing one was taken from this
-- worker, which must stop it. Locked in the order of job_events/add, which is sent concurrently.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, j.state, s.ran_seconds
    FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::double precision[])
        AS s (org_id, id, lease, ran_seconds)
    JOIN jobs AS j ON j.org_id = s.org_id AND j.id = s.id AND j.lease = s.lease
    ORDER BY j.org_id, j.id
    FOR UPDATE OF j
),
moved AS (
    UPDATE jobs AS j
    SET state = 'processing', updated_at = now(),
        started_at = now() - h.ran_seconds * interval '1 second',
        run_deadline = j.run_deadline + (now() - h.ran_seconds * interval '1 second' - j.dispatched_at)
    FROM held AS h
    WHERE j.org_id = h.org_id AND j.id = h.id AND j.lease = h.lease AND h.state = 'dispatching'
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              j.run_id, j.webhook, NULL AS error_code, old.state AS previous
),
notified AS (
    /* include webhooks/write_deliveries_from_moved */
)
SELECT h.id FROM held AS h

-- name: settle
-- End attempts that did not complete: fail, retry, unreachable, postpone, release, acknowledge_cancel.
--
-- held -> failed | retrying | queued | cancelled, fenced by the lease. Once cancellation was requested,
-- an attempt that would run again is cancelled. A retry with no attempt left fails the job for
-- good: a job as max_retries_exhausted, a task by the code of its failure, because a rerun selects
-- by it. acknowledge_cancel counts only where cancellation was requested. An executor that postpones a
-- job counts by itself how often. Interruptions and unreachable targets have no bound, so their
-- counters stop at the maximum of a smallint.
--
-- $1-$8 org, id, lease, event, error code, error message, seconds until the retry, seconds since
-- start   $9 seconds to keep by default
WITH next AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, s.event, s.error_code, s.error_message, s.delay_seconds,
           s.ran_seconds, octet_length(j.payload) AS payload_bytes,
           CASE
               WHEN s.event = 'fail' THEN 'failed'
               WHEN j.state = 'cancel_requested' THEN 'cancelled'
               WHEN s.event = 'release' THEN 'queued'
               WHEN s.event IN ('unreachable', 'postpone') THEN 'retrying'
               WHEN s.event = 'retry' AND j.failures < j.failures_max THEN 'retrying'
               WHEN s.event = 'retry' THEN 'failed'
           END::job_state AS state,
           $9::integer AS keep_seconds
    FROM unnest(
        $1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[],
        $7::double precision[], $8::double precision[]
    ) AS s (org_id, id, lease, event, error_code, error_message, delay_seconds, ran_seconds)
    JOIN jobs AS j ON j.org_id = s.org_id AND j.id = s.id AND j.lease = s.lease
    FOR UPDATE OF j
),
changed AS (
    UPDATE jobs AS j
    SET /* include jobs/set_end */,
        failures = j.failures + (next.event IN ('fail', 'retry'))::integer,
        interruptions = least(j.interruptions + (next.event = 'release')::integer, 32767),
        unreachables = least(j.unreachables + (next.event = 'unreachable')::integer, 32767),
        run_seconds = j.run_seconds + next.ran_seconds,
        error_code = CASE
            WHEN next.state = 'cancelled' THEN 'cancelled'
            WHEN next.event = 'release' THEN j.error_code
            WHEN next.event = 'retry' AND next.state = 'failed' AND j.run_id IS NULL
            THEN 'max_retries_exhausted'
            ELSE next.error_code
        END,
        error_message = CASE
            WHEN next.state = 'cancelled' THEN 'cancelled while it ran'
            WHEN next.event = 'release' THEN j.error_message
            WHEN next.event = 'retry' AND next.state = 'failed' THEN format(
                'failed %s; last: %s: %s',
                CASE j.failures WHEN 0 THEN 'once' ELSE (j.failures + 1) || ' times' END,
                next.error_code, next.error_message
            )
            ELSE next.error_message
        END,
        run_at = CASE
            WHEN next.state = 'retrying' THEN now() + next.delay_seconds * interval '1 second'
            ELSE j.run_at
        END,
        started_at = CASE
            WHEN next.state IN ('failed', 'cancelled')
            THEN coalesce(j.started_at, now() - next.ran_seconds * interval '1 second')
        END
    FROM next
    WHERE j.org_id = next.org_id AND j.id = next.id AND j.lease = next.lease AND next.state IS NOT NULL
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              next.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous,
              CASE next.event
                  WHEN 'release' THEN 'interrupted'
                  WHEN 'unreachable' THEN 'target_unreachable'
                  WHEN 'postpone' THEN 'postponed'
                  WHEN 'acknowledge_cancel' THEN 'cancelled'
                  ELSE 'failed'
              END AS outcome,
              next.error_code AS attempt_code, next.error_message AS attempt_message, j.dispatched_at,
              coalesce(old.started_at, now() - next.ran_seconds * interval '1 second') AS began_at,
              CASE j.state WHEN 'retrying' THEN j.run_at END AS next_run_at,
              j.failures + j.crashes + j.interruptions + j.unreachables AS efforts
),
moved AS (
    SELECT c.* FROM changed AS c
),
attempts AS (
    SELECT c.* FROM changed AS c
),
/* include jobs/ended */
SELECT c.org_id, c.id, c.state::text AS state, c.error_code FROM changed AS c

-- name: release_claim
-- Release a claim whose answer was lost with its connection: if it was committed, this worker holds
-- jobs that it does not know. The lease belongs to that claim alone, so every job with it is unknown.
--
-- release: dispatching -> queued; cancel_requested -> cancelled.   $1 lease   $2 seconds to keep
WITH next AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, octet_length(j.payload) AS payload_bytes,
           CASE j.state WHEN 'cancel_requested' THEN 'cancelled' ELSE 'queued' END::job_state AS state,
           $2::integer AS keep_seconds
    FROM jobs AS j
    WHERE j.lease IS NOT NULL AND j.lease >> 40 = $1::bigint >> 40 AND j.lease = $1::bigint
    FOR UPDATE
),
changed AS (
    UPDATE jobs AS j
    SET /* include jobs/set_end */,
        interruptions = least(j.interruptions + 1, 32767),
        error_code = CASE next.state WHEN 'cancelled' THEN 'cancelled' ELSE j.error_code END,
        error_message = CASE next.state
            WHEN 'cancelled' THEN 'cancelled before it started' ELSE j.error_message
        END
    FROM next
    WHERE j.org_id = next.org_id AND j.id = next.id AND j.lease = next.lease
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              next.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous
),
moved AS (
    SELECT c.* FROM changed AS c
),
attempts AS (
    /* include jobs/no_attempts */
),
/* include jobs/ended */
SELECT c.id FROM changed AS c
