-- name: ready_flows
-- The flows to claim jobs from, organisations first: common table expressions included by
-- exchange and look, which share $1 to $9. Gives `served`, `listed` and `ended`.
--
-- Two loose scans of queue_order: each step of a recursion is one index probe, however long the
-- backlog that it passes.
--
-- `pairs` looks for organisations. Each endpoint has its own scan, from the organisation after the
-- lane's cursor ($5) to the last one, and from the first one back to the cursor. A step finds the next
-- organisation; or the second flow of the same one, and then the rest of it is skipped. A scan ends
-- when it has found an organisation for every job there is room for, when it has come full circle, or
-- after its part of $8 probes (`looks_max`, the same for every endpoint). Where one ended for that
-- last reason, `cuts`, no organisation after it counts: the other scans may have seen more of them.
--
-- `flows` looks for flows, in organisations that have several, of all of their endpoints: from where
-- the last claim of that organisation ended ($6, by organisation: an endpoint, and the first flow
-- that comes) round to there. All organisations advance a step at a time, each until it has a flow
-- for every job of its share, has come full circle, or has used its part of $8 probes.
--
-- $9 selects flows under a limit (true) or the others (false). Of those under a limit,
-- all are listed, whatever the room, and the caller chooses. `pairs` knows where a whole organisation or a whole
-- endpoint is under a limit. An organisation that has limits on flows or on runs is `mixed`: `flows`
-- finds out, and it takes up no room until then. A run that is under a limit
-- (core/schema/0005_limits.sql) is one line, however many flows it has: the scan continues right
-- behind all of them.
--
-- `listed` divides the room equally over organisations, and the share of each equally over its flows.
-- Where $7 has the organisations that hold a slot, those are left out, and each of the others gets one
-- job. `ended` is where the next claim continues: the lane's organisation (no endpoint), and a flow
-- for each organisation that has several. So everybody has a turn, even with more organisations or
-- flows than room, and nobody gets an extra job twice in a row.
--
-- x || chr(1) is the first text after x.
asked AS MATERIALIZED (
    SELECT a.lane::job_lane AS lane, a.room, a.after_org COLLATE "C" AS after_org, a.turns, a.holders,
           greatest($8::integer / greatest(cardinality($3::text[]), 1), 8) AS looks_max,
           -- Once per claim: most deployments have no limit.
           EXISTS (SELECT FROM concurrency_limits) AS any_limits,
           EXISTS (SELECT FROM run_limits) AS any_run_limits
    FROM unnest($1::text[], $2::integer[], $5::text[], $6::jsonb[], $7::jsonb[])
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
            SELECT q.org_id, q.flow
            FROM queue AS q
            WHERE q.lane = p.lane AND q.endpoint = p.endpoint
              AND (q.org_id, q.flow) >= (p.from_org, p.from_flow)
            ORDER BY q.org_id, q.flow
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
            SELECT CASE WHEN $9::boolean THEN limited OR mixed ELSE NOT limited END
                   AND (a.holders ? ready.org_id) IS NOT TRUE
        ) AS choice (wanted)
        WHERE NOT p.wrapped OR a.after_org = '' OR ready.org_id <= a.after_org
    ) AS next ON true
    -- When the room is used up, one more probe: whether the last organisation has another flow.
    WHERE NOT p.gone_round AND NOT p.cut
      AND (p.found < p.room OR p.found = p.room AND p.from_flow <> '' OR $9::boolean)
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
           $8::integer / o.org_count AS looks_max,
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
               NOT f.mixed OR $9::boolean = (
                   of_run
                   OR (f.endpoints[f.stretch] = ANY (f.limited)) IS TRUE
                   OR EXISTS (
                       SELECT FROM concurrency_limits AS c
                       WHERE c.org_id = f.org_id AND c.scope = 'flow' AND c.name = ready.flow
                   )
               ) AS wanted
        FROM (
            SELECT q.flow
            FROM queue AS q
            WHERE q.lane = f.lane AND q.endpoint = f.endpoints[f.stretch]
              AND q.org_id = f.org_id
              AND q.flow >= coalesce(f.place, CASE WHEN f.stretch = 1 THEN f.turn_flow END, '')
            ORDER BY q.flow
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
      AND (f.found < f.flows_max OR $9::boolean)
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
               WHEN s.is_cut AND (s.flow_count < s.share OR $9::boolean)
                   THEN s.looked = s.look_count
               WHEN $9::boolean OR s.flow_count = 0 OR s.org_rank > s.room THEN false
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
    WHERE NOT $9::boolean AND l.wanted AND l.found = 1
      AND l.org_rank = CASE
          WHEN l.org_count >= l.room THEN l.room
          WHEN NOT EXISTS (SELECT FROM cuts AS c WHERE c.lane = l.lane) THEN l.room % l.org_count
      END
    UNION ALL
    (
        SELECT DISTINCT ON (c.lane) c.lane, c.org_id, NULL, NULL
        FROM cuts AS c
        WHERE $9::boolean
           OR NOT EXISTS (SELECT FROM listed AS l WHERE l.lane = c.lane AND l.org_count >= l.room)
        ORDER BY c.lane, c.wrapped, c.org_id
    )
    UNION ALL
    SELECT l.lane, l.org_id, l.endpoint, l.place
    FROM listed AS l
    WHERE l.is_turn
)

-- name: exchange
-- Complete few jobs and claim new ones: one statement, one round trip, one commit. With many to complete, a
-- worker sends complete and claim instead, at the same time.
--
-- Transitions: held -> completed, queued -> dispatching.
--
-- Its parameters have numbers, and its text is sent by the caller: each worker sends it in a tight loop,
-- and must not repeat it, because a claim with a lost answer is released first (release_claim). So are
-- those of claim and complete.
--
-- $1-$10 as in claim
-- $11-$16 completed: org, id, lease, result, seconds since start, bytes of its payload
-- $17 seconds to keep by default   $18 leases of this worker of which it has recorded every job
--
-- Returns the rows of claim, and one for each accepted completion: only org_id and id.
WITH RECURSIVE /* include claims/claimed */,
given AS (
    SELECT g.org_id, g.id, g.lease, g.result, g.ran_seconds, g.payload_bytes,
           $17::integer AS keep_seconds
    FROM unnest(
        $11::text[], $12::uuid[], $13::bigint[], $14::bytea[], $15::double precision[],
        $16::integer[]
    ) AS g (org_id, id, lease, result, ran_seconds, payload_bytes)
),
/* include claims/completed */,
over AS (
    DELETE FROM claims AS k
    USING unnest($18::bigint[]) AS o (lease)
    WHERE k.lease >> 40 = o.lease >> 40 AND k.lease = o.lease
),
moved AS (
    /* include claims/moved_by_completion */
    UNION ALL
    /* include claims/moved_by_claim */
),
attempts AS (
    /* include jobs/no_attempts */
),
/* include jobs/ended */
/* include claims/claimed_rows */
UNION ALL
SELECT c.org_id, c.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM changed AS c

-- name: claim
-- Claim jobs.
--
-- Transition: queued -> dispatching.
--
-- $1 lanes, $2 room in each   $3 endpoints, $4 timeout of each   $10 lease
-- $5 the organisation that each lane's scan starts after   $6 where those with several flows continue
-- $7 organisations that hold a slot, for a lane that has room for others only
-- $8 organisations, and flows, to look at in a lane, at most   $9 false
--
-- Returns rows of three kinds: claimed jobs, where the next claim continues (no id), and one row without
-- anything if there is work and none of it could be claimed, because others have locked it.
WITH RECURSIVE /* include claims/claimed */,
moved AS (
    /* include claims/moved_by_claim */
),
notified AS (
    /* include webhooks/write_deliveries_from_moved */
)
/* include claims/claimed_rows */

-- name: complete
-- Complete jobs.
--
-- Transition: held -> completed.
--
-- $1-$6 org, id, lease, result, seconds since start, bytes of its payload
-- $7 seconds to keep by default   $8 leases of this worker of which it has recorded every job
--
-- Returns nothing if all were accepted; else one row with the ids of those that were, NULL for none.
WITH /* include claims/completions */
SELECT array_agg(c.id) AS ids FROM changed AS c HAVING count(*) < cardinality($2::uuid[])

-- name: complete_and_notify
-- Complete a few jobs at a quiet time, and notify those who wait in the same transaction (docs/adr/0062).
--
-- Transition: held -> completed.
--
-- The notification commits with the results, so nobody hears of one that is not durable. It holds a lock of the
-- whole cluster until then, which is why it is for quiet times (docs/adr/0011).
--
-- $1-$8 as in complete   $9 channel, $10 notification to send
--
-- Returns the ids of those that were accepted.
WITH /* include claims/completions */
SELECT c.id, pg_notify($9::text, $10::text) FROM changed AS c

-- name: claim_named once
-- Claim the one job that a notification named, at a quiet time: queued -> dispatching. A plan of a few nodes,
-- where exchange looks for flows (docs/adr/0062).
--
-- It takes nobody's turn: the job must stand alone in its row of the queue, at the front of its flow, and the
-- caller has free room and knows of nothing else that waits. Whatever a claim may have to obey or to write
-- for others is left to exchange: with any limit, any webhook of the job or any endpoint that hears of jobs,
-- this claims nothing.
--
-- As queue/take, it locks the row of the queue and the job, and waits for neither.
--
-- :lane, :endpoint as the notification has them   :timeout of that endpoint
--
-- Returns the job as exchange does; or a row without an id if it is still queued, and the caller looks for
-- work; or none: somebody else has it.
--
-- Once: as for exchange, a claim with a lost answer is released first (release_claim).
WITH picked AS MATERIALIZED (
    SELECT q.ctid AS line, j.ctid AS tid
    FROM queue AS q
    CROSS JOIN jobs AS j
    WHERE q.org_id = :org AND q.id = :job AND cardinality(q.ids) = 1
      AND q.lane = /* include jobs/given_lane */
      AND q.endpoint = :endpoint
      AND j.org_id = :org AND j.id = :job AND j.state = 'queued' AND coalesce(j.webhook, 0) = 0
      AND NOT EXISTS (SELECT FROM concurrency_limits) AND NOT EXISTS (SELECT FROM run_limits)
      AND NOT EXISTS (SELECT FROM webhook_targets AS t WHERE t.events IS NOT NULL)
      AND NOT EXISTS (
          SELECT FROM queue AS f
          WHERE f.lane = q.lane AND f.endpoint = q.endpoint AND f.org_id = q.org_id
            AND f.flow = q.flow AND (f.run_at, f.id) < (q.run_at, q.id)
          OFFSET 0
      )
    LIMIT 1
    FOR UPDATE OF q, j SKIP LOCKED
),
claimed AS (
    UPDATE jobs AS j
    SET state = 'dispatching', lease = :lease::bigint, updated_at = now(),
        dispatched_at = greatest(now(), j.created_at),
        run_deadline = now()
            + coalesce(j.timeout_seconds, :timeout::double precision) * interval '1 second'
    FROM picked AS p
    WHERE j.ctid = p.tid
    RETURNING j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow, j.payload,
              j.failures + j.crashes + 1 AS attempt, j.failures, j.unreachables,
              j.timeout_seconds, j.request_id, j.traceparent, j.lease,
              date_part('epoch', now() - greatest(j.run_at, j.created_at))::real AS waited
),
taken_out AS (
    DELETE FROM queue AS q USING picked AS p, claimed AS c WHERE q.ctid = p.line
),
written AS (
    /* include claims/write_claims */
)
SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.payload, c.attempt, c.failures, c.unreachables,
       c.timeout_seconds, c.request_id, NULL, c.traceparent, c.waited
FROM claimed AS c
UNION ALL
SELECT j.org_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM jobs AS j
WHERE NOT EXISTS (SELECT FROM claimed)
  AND j.org_id = :org AND j.id = :job AND j.state = 'queued'

-- name: claimed
-- Common table expressions of a claim, from ready_flows on; `claimed` are the jobs.
--
-- Each flow gives as many jobs as ready_flows allots to it (queue/take). Flows under a concurrency limit
-- are left to take. The update finds the rows by ctid: this very statement has locked them, so they
-- cannot move. A claim that began, and was planned, while a job was being created sees it, yet has the
-- earlier now().
/* include claims/ready_flows */,
lines AS (
    SELECT l.lane, l.endpoint, l.org_id, l.flow, l.quota::integer AS jobs, l.org_rank::integer AS rank
    FROM listed AS l
    WHERE l.quota > 0
),
/* include queue/take */,
claimed AS (
    UPDATE jobs AS j
    SET state = 'dispatching', lease = $10::bigint, updated_at = now(),
        dispatched_at = greatest(now(), j.created_at),
        run_deadline = now() + coalesce(
            j.timeout_seconds,
            (SELECT s.timeout FROM served AS s WHERE s.endpoint = j.endpoint)
        ) * interval '1 second'
    FROM picked AS p
    WHERE j.ctid = p.tid
    RETURNING j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow, j.payload,
              j.failures + j.crashes + 1 AS attempt, j.failures, j.unreachables,
              j.timeout_seconds, j.request_id, j.traceparent, p.rank, j.run_id, j.webhook, j.lease,
              date_part('epoch', now() - greatest(j.run_at, j.created_at))::real AS waited
),
written AS (
    /* include claims/write_claims */
)

-- name: moved_by_claim
-- The state changes of a claim, for webhooks/write_deliveries_from_moved.
SELECT c.org_id, c.id, 'dispatching'::job_state AS state, 'queued'::job_state AS previous, c.endpoint, c.flow,
       c.attempt AS attempts, c.run_id, c.webhook, NULL AS error_code
FROM claimed AS c

-- name: moved_by_completion
-- The state changes of completions, for webhooks/write_deliveries_from_moved.
SELECT c.org_id, c.id, c.state, c.previous, c.endpoint, c.flow, c.attempts, c.run_id, c.webhook,
       c.error_code
FROM changed AS c

-- name: claimed_rows
-- What a claim returns.
SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.payload, c.attempt, c.failures, c.unreachables,
       c.timeout_seconds, c.request_id, c.rank, c.traceparent, c.waited
FROM claimed AS c
UNION ALL
SELECT e.org_id, NULL, e.lane::text, e.endpoint, e.flow, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL
FROM ended AS e
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE EXISTS (SELECT FROM lines) AND NOT EXISTS (SELECT FROM claimed)

-- name: completions
-- The common table expressions of statements that only complete jobs.
given AS (
    SELECT g.org_id, g.id, g.lease, g.result, g.ran_seconds, g.payload_bytes,
           $7::integer AS keep_seconds
    FROM unnest(
        $1::text[], $2::uuid[], $3::bigint[], $4::bytea[], $5::double precision[], $6::integer[]
    ) AS g (org_id, id, lease, result, ran_seconds, payload_bytes)
),
/* include claims/completed */,
over AS (
    DELETE FROM claims AS k
    USING unnest($8::bigint[]) AS o (lease)
    WHERE k.lease >> 40 = o.lease >> 40 AND k.lease = o.lease
),
moved AS (
    /* include claims/moved_by_completion */
),
attempts AS (
    /* include jobs/no_attempts */
),
/* include jobs/ended */

-- name: completed
-- The common table expression `changed`: completes the jobs of `given`.
--
-- Fenced by the lease alone: it is NULL unless the job is held, and new for every claim. Naming the state
-- as well would make the planner leave the primary key.
changed AS (
    UPDATE jobs AS j
    SET /* include jobs/set_end */,
        result = next.result, error_code = NULL, error_message = NULL,
        started_at = coalesce(j.started_at, now() - next.ran_seconds * interval '1 second'),
        run_seconds = j.run_seconds + next.ran_seconds
    FROM (SELECT g.*, 'completed'::job_state AS state FROM given AS g) AS next
    WHERE j.org_id = next.org_id AND j.id = next.id AND j.lease = next.lease
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              next.payload_bytes, octet_length(next.result) AS result_bytes, j.run_seconds,
              j.run_id, j.webhook, NULL AS error_code, NULL AS error_message,
              j.expires_at, j.owner, j.task_index, old.state AS previous
)

-- name: write_claims
-- Write where to look for the jobs that were just claimed (core/schema/0001_jobs.sql): included by every
-- statement that gives jobs a lease, from its `claimed`: org_id, id and lease of each.
INSERT INTO claims (org_id, lease, ids)
SELECT c.org_id, c.lease, array_agg(c.id) FROM claimed AS c GROUP BY c.org_id, c.lease

-- name: lock
-- Serialise claims under limits ("CoatLi"): they run one at a time. The lock is held until the
-- transaction ends. It is taken before the snapshot of the look, so that the look counts every permit
-- given out before it.
SELECT pg_advisory_xact_lock(x'436F61744C69'::bigint)

-- name: begin
-- Begin the transaction of a claim under limits and take its lock. READ COMMITTED whatever the
-- database's default is: every later statement has a snapshot of its own, younger than the lock.
-- The wait is bounded: all workers of a process share the connection, and the holder may be frozen.
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = '5s';
/* include claims/lock */

-- name: look
-- What waits under a limit, for a claim that chooses in Python: queues, and runs with limits. Each is
-- one row, with the limits and rates that apply to it. Reads at most as much as ready_flows; the queues
-- of a run with limits are not read here.
--
-- A rate is a moment in time (core/schema/0005_limits.sql): `ahead_seconds` is how far it is ahead of
-- the clock. All times are relative to `now`.
--
-- $1-$9 as in ready_flows; $9 true
--
-- Returns rows of two kinds: queues and runs; and where the next claim continues (no is_run).
WITH RECURSIVE /* include claims/ready_flows */
SELECT l.lane::text AS lane, l.endpoint, l.org_id, named.name,
       (
           SELECT min(c.held_max) FROM concurrency_limits AS c
           WHERE c.org_id = l.org_id AND c.scope = 'org'
       ) AS org_max,
       (
           SELECT c.held_max FROM concurrency_limits AS c
           WHERE c.org_id = l.org_id AND c.scope = 'endpoint' AND c.name = l.endpoint
       ) AS endpoint_max,
       (
           SELECT c.held_max FROM concurrency_limits AS c
           WHERE c.org_id = '*' AND c.scope = 'endpoint' AND c.name = l.endpoint
       ) AS shared_max,
       CASE WHEN NOT l.of_run THEN (
           SELECT c.held_max FROM concurrency_limits AS c
           WHERE c.org_id = l.org_id AND c.scope = 'flow' AND c.name = l.flow
       ) END AS queue_max,
       r.held_max AS run_max, l.of_run AS is_run, r.per_second, r.key_per_second,
       extract(epoch FROM t.in_step_at - statement_timestamp())::double precision AS ahead_seconds,
       coalesce(t.looked_to, '') AS looked_to,
       extract(
           epoch FROM nullif(t.next_look_at, '-infinity') - statement_timestamp()
       )::double precision AS next_look_seconds,
       statement_timestamp() AS now
FROM listed AS l
CROSS JOIN LATERAL (
    SELECT CASE WHEN l.of_run THEN split_part(l.flow, '/', 1) ELSE l.flow END
) AS named (name)
LEFT JOIN run_limits AS r ON l.of_run AND r.org_id = l.org_id AND r.run = named.name
LEFT JOIN run_tokens AS t
    ON l.of_run AND t.org_id = l.org_id AND t.run = named.name AND t.flow = ''
WHERE l.wanted
UNION ALL
SELECT e.lane::text, e.endpoint, e.org_id, e.flow, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL
FROM ended AS e

-- name: look_at_all
-- All queues that have work, under a limit or not, for a product that schedules its own jobs: since when
-- the oldest jobs of each wait, in seconds since 1970.
--
-- A loose scan of queue_order for each lane and endpoint: a step of the recursion is one probe for the
-- oldest job of the next queue. It begins after the queue where the last look ended, goes on to the last
-- one, and from the first one back to there. Apart from ready_flows, because its caller waits for a first
-- token and needs no shares of the room: ready_flows costs it 0.7 ms with one queue, 2 ms with 100.
--
-- $1 lanes, $2 endpoints, $3, $4 organisation and flow after which each scan begins
-- $5 steps of each scan, at most   $6 jobs of each queue, at most
--
-- `steps` of $5: the scan ended there, and there may be more.
WITH RECURSIVE scan AS (
    SELECT a.lane::job_lane AS lane, a.endpoint COLLATE "C" AS endpoint,
           a.after_org COLLATE "C" AS after_org, a.after_flow COLLATE "C" AS after_flow,
           a.after_org COLLATE "C" AS org_id, a.after_flow COLLATE "C" AS flow,
           NULL::timestamptz AS run_at, a.after_org = '' AS wrapped, false AS gone_round, 0 AS steps
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
        AS a (lane, endpoint, after_org, after_flow)
    UNION ALL
    SELECT s.lane, s.endpoint, s.after_org, s.after_flow,
           coalesce(next.org_id, ''), coalesce(next.flow, ''), next.run_at,
           s.wrapped OR next.org_id IS NULL, s.wrapped AND next.org_id IS NULL, s.steps + 1
    FROM scan AS s
    LEFT JOIN LATERAL (
        SELECT ready.org_id, ready.flow, ready.run_at
        FROM (
            SELECT q.org_id, q.flow, q.run_at
            FROM queue AS q
            WHERE q.lane = s.lane AND q.endpoint = s.endpoint
              AND (q.org_id, q.flow) > (s.org_id, s.flow)
            ORDER BY q.org_id, q.flow, q.run_at, q.id
            LIMIT 1
        ) AS ready
        WHERE NOT s.wrapped OR s.after_org = ''
           OR (ready.org_id, ready.flow) <= (s.after_org, s.after_flow)
    ) AS next ON true
    WHERE NOT s.gone_round AND s.steps < $5::integer
)
SELECT s.lane::text AS lane, s.endpoint, s.org_id, s.flow AS key,
       CASE $6::integer
           -- The scan has read it. date_part, because extract takes a detour through numeric.
           WHEN 1 THEN ARRAY[date_part('epoch', s.run_at)]
           ELSE array(
               SELECT date_part('epoch', r.run_at)
               FROM (
                   SELECT q.run_at, q.ids
                   FROM queue AS q
                   WHERE q.lane = s.lane AND q.endpoint = s.endpoint
                     AND q.org_id = s.org_id AND q.flow = s.flow
                   ORDER BY q.run_at, q.id
                   LIMIT $6::integer
               ) AS r
               CROSS JOIN LATERAL unnest(r.ids)
               ORDER BY r.run_at
               LIMIT $6::integer
           )
       END AS since,
       s.steps
FROM scan AS s
WHERE s.run_at IS NOT NULL

-- name: limits_set
-- The concurrency limits that apply to all organisations, and to these. Index: the primary key.
SELECT c.org_id, c.scope, c.name, c.held_max
FROM concurrency_limits AS c
WHERE c.org_id = ANY (:orgs::text[] || '*'::text)

-- name: held
-- How many jobs of each queue are held. A permit in use is a held job: counted here, stored nowhere.
SELECT h.endpoint, h.org_id, h.flow, count(*) AS jobs
FROM held_jobs AS h
WHERE h.boot >= 0
GROUP BY h.endpoint, h.org_id, h.flow

-- name: run_keys
-- The queues of runs that may start a task, at most `shares` of each run and some more.
--
-- A run may have ten thousand queues. With a rate per queue (`rated`), those that used it lately have a
-- row in run_tokens, and the index run_tokens_next gives those that have a token now: `due`, longest
-- waiting first. Some may have no work left: hence 20 more. The others are found by a loose scan of
-- queue_order from where the last one ended (`looked_to`) round to there, past at most `passed_max`
-- queues that wait for a token. It ends when it has found one for each job of the share.
--
-- `number` is the position of the run in the arguments, from 0 on.
--
-- Returns rows of three kinds, in this order. Queues that a scan found (`has_work`), and its last step,
-- with the counts up to there. Queues that are due, with or without work. And (no key) in how many
-- seconds the next queue of the run will be as far ahead as one may be.
WITH RECURSIVE runs AS MATERIALIZED (
    SELECT r.lane::job_lane AS lane, r.endpoint COLLATE "C" AS endpoint,
           r.org_id COLLATE "C" AS org_id, r.run COLLATE "C" AS run, r.share, r.rated,
           r.looked_to COLLATE "C" AS looked_to, r.scanned, (r.number - 1)::integer AS number,
           :now::timestamptz + :burst_seconds::double precision * interval '1 second' AS due_until
    FROM unnest(
        :lanes::text[], :endpoints::text[], :orgs::text[], :runs::text[], :shares::integer[],
        :rated::boolean[], :looked_to::text[], :scans::boolean[]
    ) WITH ORDINALITY
        AS r (lane, endpoint, org_id, run, share, rated, looked_to, scanned, number)
),
found AS (
    SELECT r.number, r.org_id, look.flow, NULL::double precision AS ahead_seconds,
           look.is_new AS has_work, look.steps, look.found,
           -- A scan that began behind the first queue and has passed the last one completes the round
           -- with the queues before its start.
           look.gone_round OR look.wrapped AND r.looked_to <> '' AS is_round
    FROM runs AS r
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
                SELECT ready.flow, NOT r.rated OR (
                           SELECT true FROM run_tokens AS t
                           WHERE t.org_id = r.org_id AND t.run = r.run AND t.flow = ready.flow
                       ) IS NULL AS is_new
                FROM (
                    SELECT q.flow
                    FROM queue AS q
                    WHERE q.lane = r.lane AND q.endpoint = r.endpoint
                      AND q.org_id = r.org_id AND q.flow >= r.run AND q.flow < r.run || '0'
                      AND q.flow > k.flow
                    ORDER BY q.flow
                    LIMIT 1
                ) AS ready
                WHERE NOT k.wrapped OR r.looked_to = '' OR ready.flow <= r.looked_to
            ) AS next ON true
            WHERE NOT k.gone_round AND k.steps - k.found < :passed_max::integer
              AND k.found < r.share
        )
        SELECT * FROM look
        WHERE steps > 0 AND (is_new OR gone_round OR steps - found >= :passed_max::integer)
    ) AS look
    WHERE r.scanned
),
due AS (
    SELECT r.number, r.org_id, t.flow,
           extract(epoch FROM t.in_step_at - :now::timestamptz)::double precision AS ahead_seconds,
           (
               -- Not EXISTS, which may be answered by reading all of them into a table.
               SELECT true FROM queue AS q
               WHERE q.lane = r.lane AND q.endpoint = r.endpoint
                 AND q.org_id = r.org_id AND q.flow = t.flow
               LIMIT 1
           ) IS NOT NULL AS has_work
    FROM runs AS r
    CROSS JOIN LATERAL (
        SELECT t.flow, t.in_step_at
        FROM run_tokens AS t
        WHERE t.org_id = r.org_id AND t.run = r.run AND t.flow <> '' AND t.in_step_at <= r.due_until
        ORDER BY t.in_step_at
        LIMIT r.share + 20
    ) AS t
    WHERE r.rated
)
SELECT k.number, k.flow AS key, k.ahead_seconds, k.has_work, k.steps AS passed, k.found, k.is_round,
       CASE WHEN k.has_work THEN (
           SELECT c.held_max FROM concurrency_limits AS c
           WHERE c.org_id = k.org_id AND c.scope = 'flow' AND c.name = k.flow
       ) END AS queue_max
FROM (
    SELECT f.number, f.org_id, f.flow, f.ahead_seconds, f.has_work, f.steps, f.found, f.is_round
    FROM found AS f
    UNION ALL
    SELECT d.number, d.org_id, d.flow, d.ahead_seconds, d.has_work, NULL, NULL, NULL FROM due AS d
    UNION ALL
    SELECT r.number, r.org_id, NULL,
           extract(epoch FROM t.in_step_at - :now::timestamptz)::double precision,
           false, NULL, NULL, NULL
    FROM runs AS r
    CROSS JOIN LATERAL (
        SELECT t.in_step_at
        FROM run_tokens AS t
        WHERE t.org_id = r.org_id AND t.run = r.run AND t.flow <> '' AND t.in_step_at > r.due_until
        ORDER BY t.in_step_at
        LIMIT 1
    ) AS t
    WHERE r.rated
) AS k
ORDER BY k.number, k.steps, k.ahead_seconds

-- name: taken
-- Claim the oldest jobs of queues, so many of each. queued -> dispatching. Common table expressions
-- included by take, and by the claims of products: they give `claimed`.
--
-- The transaction has held its lock since before it looked, so what was free then still is. A job that
-- somebody else has locked or changed meanwhile is not claimed; the queue then gives fewer.
-- The rows are locked by queue/take and updated by ctid, as in exchange.
--
-- `pick` numbers the jobs: those of a queue follow each other, oldest first, after the number `before`
-- it. A webhook for the phases of a job (4) gets this state if `shown` of that number is true, and not
-- (5) if it is false.
--
-- :lease   :served endpoints, :timeouts of each
-- :lanes, :endpoints, :orgs, :keys of the queues, :jobs of each, :before each   :shown of each pick
lines AS (
    SELECT q.lane::job_lane AS lane, q.endpoint COLLATE "C" AS endpoint, q.org_id COLLATE "C" AS org_id,
           q.flow COLLATE "C" AS flow, q.jobs, q.before AS rank
    FROM unnest(
        :lanes::text[], :endpoints::text[], :orgs::text[], :keys::text[], :jobs::integer[],
        :before::integer[]
    ) AS q (lane, endpoint, org_id, flow, jobs, before)
),
/* include queue/take */,
numbered AS MATERIALIZED (
    SELECT p.tid, (p.rank + row_number() OVER (
               PARTITION BY p.rank ORDER BY p.run_at, p.id
           ))::integer AS pick
    FROM picked AS p
),
claimed AS (
    UPDATE jobs AS j
    SET state = 'dispatching', lease = :lease::bigint, updated_at = now(),
        dispatched_at = greatest(now(), j.created_at),
        webhook = CASE
            WHEN j.webhook IN (4, 5) THEN
                CASE (:shown::boolean[])[p.pick] WHEN true THEN 4 WHEN false THEN 5
                     ELSE j.webhook END
            ELSE j.webhook
        END,
        run_deadline = now() + coalesce(
            j.timeout_seconds,
            (
                SELECT s.timeout
                FROM unnest(:served::text[], :timeouts::double precision[]) AS s (endpoint, timeout)
                WHERE s.endpoint = j.endpoint
            )
        ) * interval '1 second'
    FROM numbered AS p
    WHERE j.ctid = p.tid
    RETURNING j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow, j.payload,
              j.failures + j.crashes + 1 AS attempt, j.failures, j.unreachables,
              j.timeout_seconds, j.request_id, j.traceparent, p.pick, j.run_id, j.webhook, j.lease,
              date_part('epoch', now() - greatest(j.run_at, j.created_at))::real AS waited
),
written AS (
    /* include claims/write_claims */
),
moved AS (
    SELECT c.org_id, c.id, 'dispatching'::job_state AS state, 'queued'::job_state AS previous,
           c.endpoint, c.flow, c.attempt AS attempts, c.run_id, c.webhook, NULL AS error_code
    FROM claimed AS c
),
notified AS (
    /* include webhooks/write_deliveries_from_moved */
)

-- name: take
-- Claim the jobs that a claim under limits has chosen, and move the rates of their runs on.
--
-- Each start that was claimed moves the moment of a rate on by the time between two starts, from `now`
-- if it lies before that. Starts are counted, so a retry takes a token as well, and a released claim
-- does not return it. The row of a run also notes where the scan of its queues ended. A queue that is
-- due and has no work is deleted from run_tokens.
--
-- As taken, and
-- :rate_orgs, :rate_runs, :rate_keys rows of run_tokens to write (the run's has no key), :per_second,
-- :looked_to, :next_look_seconds of each   :now when the claim looked
-- :idle_orgs, :idle_runs, :idle_keys rows to delete
WITH /* include claims/taken */,
spent AS (
    INSERT INTO run_tokens AS t (org_id, run, flow, in_step_at, looked_to, next_look_at)
    SELECT s.org_id, s.run, s.flow,
           :now::timestamptz + coalesce(ceil(1e6 * sum(s.starts) / max(s.per_second)), 0)
               * interval '1 microsecond',
           max(s.looked_to),
           coalesce(
               :now::timestamptz + max(s.next_look_seconds) * interval '1 second', '-infinity'
           )
    FROM (
        SELECT n.*, 0 AS starts
        FROM unnest(
            :rate_orgs::text[], :rate_runs::text[], :rate_keys::text[],
            :per_second::double precision[], :looked_to::text[],
            :next_look_seconds::double precision[]
        ) AS n (org_id, run, flow, per_second, looked_to, next_look_seconds)
        UNION ALL
        SELECT c.org_id, split_part(c.flow, '/', 1), counted.flow, NULL, NULL, NULL, 1
        FROM claimed AS c
        CROSS JOIN LATERAL (VALUES (''), (c.flow)) AS counted (flow)
        WHERE cardinality(:rate_orgs::text[]) > 0
    ) AS s
    GROUP BY s.org_id, s.run, s.flow
    HAVING max(s.looked_to) IS NOT NULL
    ON CONFLICT (org_id, run, flow) DO UPDATE
    SET in_step_at = greatest(t.in_step_at, :now::timestamptz)
            + (excluded.in_step_at - :now::timestamptz),
        looked_to = excluded.looked_to, next_look_at = excluded.next_look_at
),
forgotten AS (
    DELETE FROM run_tokens AS t
    USING unnest(:idle_orgs::text[], :idle_runs::text[], :idle_keys::text[]) AS i (org_id, run, flow)
    WHERE t.org_id = i.org_id AND t.run = i.run AND t.flow = i.flow
)
SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.payload, c.attempt, c.failures, c.unreachables,
       c.timeout_seconds, c.request_id, c.pick, c.traceparent, c.waited
FROM claimed AS c

-- name: mark_started
-- Show that handlers are running: dispatching -> processing, for jobs that did not end at once.
--
-- Returns every job still held under the lease given, marked or not: a missing one was taken from this
-- worker, which must stop it. Locked in the order of reports/add, which is sent concurrently.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, j.state, s.ran_seconds
    FROM unnest(:orgs::text[], :ids::uuid[], :leases::bigint[], :ran_seconds::double precision[])
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

-- name: settle once
-- End attempts that did not complete: fail, retry, unreachable, postpone, release, acknowledge_cancel.
--
-- held -> failed | retrying | queued | cancelled, fenced by the lease. Once cancellation was requested,
-- an attempt that would run again is cancelled. A retry with no attempt left fails the job for
-- good: a job as max_retries_exhausted, a task by the code of its failure, because a rerun selects
-- by it. acknowledge_cancel counts only where cancellation was requested. An executor that postpones a
-- job counts by itself how often. Interruptions and unreachable targets have no bound, so their
-- counters stop at the maximum of a smallint.
--
-- :keep_seconds  seconds to keep by default
--
-- Once: a worker remembers which outcomes may have been committed with a lost answer, and sends them
-- again with others.
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
           :keep_seconds::integer AS keep_seconds
    FROM unnest(
        :orgs::text[], :ids::uuid[], :leases::bigint[], :events::text[], :error_codes::text[], :error_messages::text[],
        :delay_seconds::double precision[], :ran_seconds::double precision[]
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
              j.error_code, j.error_message, j.expires_at, j.owner, j.task_index, old.state AS previous,
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
              j.failures + j.crashes + j.interruptions + j.unreachables AS efforts, j.lane, j.run_at
),
moved AS (
    SELECT c.* FROM changed AS c
),
attempts AS (
    SELECT c.* FROM changed AS c
),
/* include queue/add_moved */,
/* include postponed/add_moved */,
/* include jobs/ended */
SELECT c.org_id, c.id, c.state::text AS state, c.error_code FROM changed AS c

-- name: release_claim
-- Release a claim whose answer was lost with its connection: if it was committed, this worker holds
-- jobs that it does not know. The lease belongs to that claim alone, so every job with it is unknown.
--
-- release: dispatching -> queued; cancel_requested -> cancelled.
--
-- :keep_seconds  seconds to keep
WITH next AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, octet_length(j.payload) AS payload_bytes,
           CASE j.state WHEN 'cancel_requested' THEN 'cancelled' ELSE 'queued' END::job_state AS state,
           :keep_seconds::integer AS keep_seconds
    FROM claimed_jobs AS k
    CROSS JOIN LATERAL (
        SELECT j.*
        FROM jobs AS j
        WHERE j.org_id = k.org_id AND j.id = k.id AND j.lease = k.lease
        FOR UPDATE
    ) AS j
    WHERE k.boot = :lease::bigint >> 40 AND k.lease = :lease::bigint
),
over AS (
    DELETE FROM claims AS k WHERE k.lease >> 40 = :lease::bigint >> 40 AND k.lease = :lease::bigint
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
              j.error_code, j.error_message, j.expires_at, j.owner, j.task_index, old.state AS previous, j.lane, j.run_at
),
moved AS (
    SELECT c.* FROM changed AS c
),
attempts AS (
    /* include jobs/no_attempts */
),
/* include queue/add_moved */,
/* include jobs/ended */
SELECT c.id FROM changed AS c
