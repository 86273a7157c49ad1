-- Claim jobs that are under a limit: of flows under a concurrency limit, and of runs with limits.
-- queued -> dispatching.
--
-- Exact with any number of workers: its transaction holds the advisory lock of lock_limits.sql
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
WITH RECURSIVE /* include jobs/ready_flows.sql */,
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
    /* include webhooks/write_deliveries_from_moved.sql */
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
