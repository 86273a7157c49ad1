-- name: ahead
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

-- name: backlog
-- How many jobs of these endpoints an organisation has queued, counted up to $3. Every lane is named,
-- so that jobs_ready is read only where such jobs are.
SELECT count(*)
FROM (
    SELECT
    FROM jobs AS j
    WHERE j.state = 'queued' AND j.lane IN ('urgent', 'standard', 'bulk')
      AND j.endpoint = ANY ($2::text[]) AND j.org_id = $1
    LIMIT $3
) AS waiting

-- name: cancel
-- Cancel a job. waiting -> cancelled at once; running -> cancel_requested, for its holder to see.
--
-- Returns the state before and after, and the holder; no row if there is no such job. A terminal job,
-- or one that is being cancelled, is returned unchanged.
--
-- A call to a remote becomes due at once.
--
-- The lease is written although it does not change: PostgreSQL checks a row's constraints before it
-- sees that the version it started from, without the claim that this waited for, is not the newest.
--
-- $1 org   $2 id   $3 seconds to keep by default
WITH before AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, j.lease, octet_length(j.payload) AS payload_bytes
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2
    FOR UPDATE
),
changed AS (
    UPDATE jobs AS j
    SET state = 'cancelled', lease = NULL, finished_at = now(), updated_at = now(),
        payload = CASE WHEN j.run_id IS NOT NULL OR j.keeps_input THEN j.payload END,
        error_code = 'cancelled', error_message = 'cancelled before it started',
        expires_at = CASE
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_failed_seconds, $3::integer) * interval '1 second'
        END
    FROM before AS b
    WHERE j.org_id = b.org_id AND j.id = b.id AND b.state IN ('staged', 'queued', 'retrying')
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              b.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous
),
metered AS (
    /* include usage/meter */
),
asked AS (
    UPDATE jobs AS j
    SET state = 'cancel_requested', lease = b.lease, updated_at = now()
    FROM before AS b
    WHERE j.org_id = b.org_id AND j.id = b.id
      AND b.state IN ('dispatching', 'processing', 'finalizing')
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              j.run_id, j.webhook, NULL AS error_code, old.state AS previous, j.lease
),
woken AS (
    UPDATE remote_calls AS r
    SET due_at = now(), looker = NULL
    FROM asked AS a
    WHERE a.lease >> 40 = 0 AND r.org_id = a.org_id AND r.job_id = a.id AND r.lease IS NOT NULL
),
moved AS (
    SELECT c.org_id, c.id, c.state, c.previous, c.endpoint, c.flow, c.attempts, c.run_id, c.webhook,
           c.error_code
    FROM changed AS c
    UNION ALL
    SELECT a.org_id, a.id, a.state, a.previous, a.endpoint, a.flow, a.attempts, a.run_id, a.webhook,
           a.error_code
    FROM asked AS a
),
notified AS (
    /* include webhooks/write_deliveries_from_moved */
)
SELECT b.state::text AS before, coalesce(c.state, a.state, b.state)::text AS after, b.lease >> 40 AS boot
FROM before AS b
LEFT JOIN changed AS c ON c.id = b.id
LEFT JOIN asked AS a ON a.id = b.id

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
WITH RECURSIVE /* include jobs/ready_flows */,
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

-- name: depth
-- How many jobs are queued, postponed and held, by lane and state, and how long the oldest has been due.
-- Reads the partial indexes of live states, never the history.
SELECT lane::text AS lane, state::text AS state, count(*) AS jobs,
       extract(epoch FROM clock_timestamp() - min(run_at))::double precision AS oldest_seconds
FROM (
    SELECT lane, state, run_at FROM jobs WHERE state = 'queued'
    UNION ALL
    SELECT lane, state, run_at FROM jobs WHERE state IN ('staged', 'retrying')
    UNION ALL
    SELECT lane, state, run_at FROM jobs WHERE lease IS NOT NULL
) AS live
GROUP BY lane, state

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
WITH RECURSIVE /* include jobs/ready_flows */,
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
    SET state = 'completed', lease = NULL, result = c.result,
        payload = CASE WHEN j.run_id IS NOT NULL THEN j.payload END,
        error_code = NULL, error_message = NULL, run_deadline = NULL,
        started_at = coalesce(j.started_at, now() - c.ran_seconds * interval '1 second'),
        run_seconds = j.run_seconds + c.ran_seconds,
        finished_at = now(), updated_at = now(),
        expires_at = CASE
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_completed_seconds, $17::integer) * interval '1 second'
        END
    FROM unnest(
        $11::text[], $12::uuid[], $13::bigint[], $14::bytea[], $15::double precision[],
        $16::integer[]
    ) AS c (org_id, id, lease, result, ran_seconds, payload_bytes)
    WHERE j.org_id = c.org_id AND j.id = c.id AND j.lease = c.lease
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              c.payload_bytes, octet_length(c.result) AS result_bytes, j.run_seconds,
              j.run_id, j.webhook, NULL AS error_code, NULL AS error_message,
              old.state AS previous
),
metered AS (
    /* include usage/meter */
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
notified AS (
    /* include webhooks/write_deliveries_from_moved */
)
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

-- name: explain
-- The conditions that apply to one job now, a row for each: those of stall, with names and numbers,
-- and without waiting until they last too long.
--
--   kind     name            number            of                since          until
--   limit    its name        jobs held         jobs allowed
--   rate     a flow, or ''   starts per second                                  when it is back in step
--   server                   slots             jobs in them      last seen
--   threads                  threads held
--   share                    slots it holds    slots reserved for others
--   holder   the worker      its lease seconds                   last seen
--   remote                   faults in a row   polls             spawned        the next poll
--
-- `scope` is the scope of a limit; `is_shared`: other organisations' jobs count as well. `is_fit`: a
-- server was seen in time, a holder recently; of a share, some server has a slot for the organisation.
-- Servers form two groups: those that are fit, and those that are not. Threads are listed only if no
-- server has a free one for the job.
--
-- $1 org   $2 id
WITH asked AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, j.lane, j.endpoint, j.flow, j.lease
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2
),
serving AS MATERIALIZED (
    SELECT w.boot, w.name, w.endpoints, w.lanes, w.slots, w.reserved, w.threads_held,
           now() - w.last_seen_at AS silent_for,
           w.urgent_seconds, w.standard_seconds, w.bulk_seconds
    FROM workers AS w
    WHERE w.died_at IS NULL
),
held AS MATERIALIZED (
    SELECT j.endpoint, j.org_id, j.flow, count(*) AS jobs
    FROM jobs AS j
    WHERE j.lease IS NOT NULL
    GROUP BY j.endpoint, j.org_id, j.flow
)
SELECT 'limit' AS kind, l.scope, l.name, l.held::double precision AS number,
       l.held_max::double precision AS "of", NULL::timestamptz AS since,
       NULL::timestamptz AS until, l.limit_org = '*' AS is_shared, l.held < l.held_max AS is_fit
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/limits_on */) AS l
WHERE a.lease IS NULL
UNION ALL
SELECT 'rate', NULL, r.flow, r.per_second, NULL, NULL, r.in_step_at, false, false
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/rates_on */) AS r
WHERE a.lease IS NULL
UNION ALL
SELECT 'server', NULL, NULL, CASE WHEN count(s.slots) = count(*) THEN sum(s.slots) END, sum(
           (
               SELECT count(*) FROM jobs AS j
               WHERE j.lease IS NOT NULL AND j.lease >> 40 = s.boot AND j.lane = a.lane
           )
       ), max(now() - s.silent_for), NULL, true, s.is_alive
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/served_by */) AS s
WHERE a.lease IS NULL
GROUP BY s.is_alive
UNION ALL
SELECT 'threads', NULL, NULL, sum(s.threads_held), NULL, NULL, NULL, true, false
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/served_by */) AS s
WHERE a.lease IS NULL AND s.is_alive
HAVING count(*) > 0 AND count(*) = count(s.threads_held)
UNION ALL
SELECT 'share', NULL, NULL, sum(u.own), sum(s.reserved), NULL, NULL, true,
       bool_or(u.held < s.slots - CASE WHEN u.own > 0 THEN s.reserved ELSE 0 END)
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/served_by */) AS s
CROSS JOIN LATERAL (
    SELECT count(*) AS held, count(*) FILTER (WHERE j.org_id = a.org_id) AS own
    FROM jobs AS j
    WHERE j.lease IS NOT NULL AND j.lease >> 40 = s.boot AND j.lane = a.lane
) AS u
WHERE a.lease IS NULL AND s.is_alive AND (/* include limits/shared */)
HAVING sum(s.reserved) > 0
UNION ALL
SELECT 'holder', NULL, h.name, h.lease_seconds, NULL, now() - h.silent_for, NULL, true, h.is_heard
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/held_by */) AS h
WHERE a.lease >> 40 > 0
UNION ALL
SELECT 'remote', NULL, NULL, r.faults, r.polls, r.spawned_at, r.due_at, false, r.faults = 0
FROM asked AS a
JOIN remote_calls AS r ON r.org_id = a.org_id AND r.job_id = a.id
WHERE a.lease >> 40 = 0

-- name: find
-- The job that holds an idempotency key: the answer to a repeated POST before its body is read.
SELECT /* include jobs/view_columns */, j.result
FROM jobs AS j
WHERE j.org_id = $1 AND j.idempotency_key = $2

-- name: find_existing
-- The jobs that prevented submissions from being created: they have the same id (our own statement,
-- sent twice) or the same idempotency key.
SELECT s.position, j.id, j.state::text AS state, j.fingerprint
FROM unnest($1::text[], $2::uuid[], $3::text[]) WITH ORDINALITY
    AS s (org_id, id, idempotency_key, position)
CROSS JOIN LATERAL (
    SELECT j.id, j.state, j.fingerprint
    FROM jobs AS j
    WHERE j.org_id = s.org_id AND j.id = s.id
    UNION ALL
    SELECT j.id, j.state, j.fingerprint
    FROM jobs AS j
    WHERE j.org_id = s.org_id AND j.idempotency_key = s.idempotency_key
    LIMIT 1
) AS j

-- name: get
-- Jobs by id, for every reader that arrived while the last read was in flight. Long results are left
-- out: 500 of them would not fit into memory. result reads one for one job at a time.
--
-- $1 orgs   $2 ids   $3 bytes that a result may have
SELECT /* include jobs/view_columns */,
       CASE WHEN octet_length(j.result) <= $3::integer THEN j.result END AS result
FROM unnest($1::text[], $2::uuid[]) AS wanted (org_id, id)
JOIN jobs AS j ON j.org_id = wanted.org_id AND j.id = wanted.id

-- name: held_by
-- The worker that holds a job `a`, and whether it was seen within half of its lease time for the job's
-- lane: included by stall and explain, which give `serving`.
SELECT w.boot, w.name, w.silent_for,
       w.silent_for <= interval '0.5 seconds' * CASE a.lane
           WHEN 'urgent' THEN w.urgent_seconds
           WHEN 'standard' THEN w.standard_seconds
           WHEN 'bulk' THEN w.bulk_seconds
       END AS is_heard,
       CASE a.lane
           WHEN 'urgent' THEN w.urgent_seconds
           WHEN 'standard' THEN w.standard_seconds
           WHEN 'bulk' THEN w.bulk_seconds
       END AS lease_seconds
FROM serving AS w
WHERE w.boot = a.lease >> 40

-- name: held_of
-- How many jobs of some endpoints are held. Reads all held jobs of the deployment, which are at most as
-- many as there are slots.
--
-- $1 endpoints
SELECT count(*) AS jobs
FROM jobs AS j
WHERE j.lease IS NOT NULL AND j.endpoint = ANY ($1::text[])

-- name: holders
-- Some of the jobs that use up a limit, longest held first, and their owners.
--
-- IS TRUE keeps the planner from the primary key, by which it would read the organisation's history.
--
-- $1 org   $2 scope: org, flow, endpoint, run, or lane for all held jobs of one   $3 name
-- $4 rows at most
SELECT j.id, j.owner
FROM jobs AS j
WHERE j.lease IS NOT NULL AND (j.org_id = $1) IS TRUE AND CASE $2::text
    WHEN 'org' THEN true
    WHEN 'flow' THEN j.flow = $3
    WHEN 'endpoint' THEN j.endpoint = $3
    WHEN 'run' THEN split_part(j.flow, '/', 1) = $3
    WHEN 'lane' THEN j.lane::text = $3
END
ORDER BY j.dispatched_at, j.id
LIMIT $4::integer

-- name: horizon
-- The window of a search for changes: included by the statements that search. `seen` is the snapshot
-- at the start of the search, which on its first page is this statement's own.
--
-- $4 after which snapshot, or NULL   $5 up to which one, or NULL for now
SELECT coalesce($5::text::pg_snapshot, pg_current_snapshot()) AS seen,
       $4::text::pg_snapshot AS known,
       pg_snapshot_xmin($4::text::pg_snapshot)::text::bigint AS known_from,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_id,
       -- The database is behind the given snapshot, for instance after a restore: report everything.
       pg_snapshot_xmax($4::text::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) AS is_foreign

-- name: is_changed
-- Whether a row of `walked` counts as changed: a transaction wrote it that `known` does not see and
-- `seen` does. Without `known`, whether the job has not ended. Included by the statements that search
-- for changes; `horizon` is h, `walked` is w.
CASE WHEN h.known IS NULL THEN w.state NOT IN ('completed', 'failed', 'cancelled')
     ELSE h.is_foreign
          OR (w.written_by >= h.known_from
              AND NOT pg_visible_in_snapshot(w.written_by::text::xid8, h.known))
END
AND pg_visible_in_snapshot(w.written_by::text::xid8, h.seen)

-- name: limits_on
-- The concurrency limits that apply to a job `a`, and how many jobs each holds: included by stall
-- and explain, whose `held` counts as claim_limited does. `held` is not read without a limit.
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

-- name: list
-- An organisation's jobs, newest first, a page at a time: $2 is the last id of the previous page.
-- Tasks are not listed: page_filter says why the ids have bounds.
-- Results are left out: a page of them could have any size.
SELECT /* include jobs/view_columns */, NULL::bytea AS result
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id IS NULL AND j.id >= '01000000-0000-0000-0000-000000000000'
  AND j.id < $2::uuid
  AND ($3::text[] IS NULL OR j.state::text = ANY ($3))
  AND ($4::text IS NULL OR j.endpoint = $4)
  AND ($5::text IS NULL OR j.lane::text = $5)
ORDER BY j.id DESC
LIMIT $6

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

-- name: next_of_run
-- A task that represents a run's unfinished ones: the first queued one, else one that waits for a retry,
-- else one that runs. Each is found by an index of its own; no row if all have ended.
--
-- $1 org   $2 run
SELECT n.id
FROM (
    (
        SELECT 1 AS rank, j.id
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.org_id = $1 AND j.run_id = $2
          AND j.lane = (SELECT r.lane FROM runs AS r WHERE r.org_id = $1 AND r.id = $2)
          AND j.endpoint = (SELECT r.endpoint FROM runs AS r WHERE r.org_id = $1 AND r.id = $2)
          AND j.flow >= replace($2::uuid::text, '-', '')
          AND j.flow < replace($2::uuid::text, '-', '') || '0'
        ORDER BY j.flow, j.run_at, j.id
        LIMIT 1
    )
    UNION ALL
    (
        SELECT 2, j.id
        FROM jobs AS j
        WHERE j.org_id = $1 AND j.run_id = $2 AND j.state IN ('staged', 'retrying')
        ORDER BY j.task_index
        LIMIT 1
    )
    UNION ALL
    (
        SELECT 3, j.id
        FROM jobs AS j
        WHERE j.org_id = $1 AND j.run_id = $2
          AND j.state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested')
        LIMIT 1
    )
) AS n
ORDER BY n.rank
LIMIT 1

-- name: of_service
-- Whether an ended job `j` is of the organisation $1 and of the service of `wanted`: included by the
-- statements that walk jobs_ended. IS TRUE keeps the planner from the primary key, by which it would
-- read the organisation's history.
hashtextextended(job_service(j.endpoint, j.flow) || j.org_id, 0) = wanted.service_hash
          AND j.state IN ('completed', 'failed', 'cancelled') AND j.run_id IS NULL
          AND (j.org_id = $1) IS TRUE
          AND job_service(j.endpoint, j.flow) = wanted.service

-- name: org_backlog
-- How many jobs an organisation has queued, tasks included, counted up to $2.
--
-- A loose scan of jobs_ready finds the endpoints that have queued jobs, with one probe each; of those
-- it reads the organisation's own entries and no others. So it costs what it counts, however long the
-- history or other queues are, and no caller has to know the endpoints.
WITH RECURSIVE lines AS (
    (
        SELECT j.lane, j.endpoint
        FROM jobs AS j
        WHERE j.state = 'queued'
        ORDER BY j.lane, j.endpoint
        LIMIT 1
    )
    UNION ALL
    SELECT next.lane, next.endpoint
    FROM lines AS l
    CROSS JOIN LATERAL (
        SELECT j.lane, j.endpoint
        FROM jobs AS j
        WHERE j.state = 'queued' AND (j.lane, j.endpoint) > (l.lane, l.endpoint)
        ORDER BY j.lane, j.endpoint
        LIMIT 1
    ) AS next
)
SELECT count(*)
FROM (
    SELECT
    FROM lines AS l
    CROSS JOIN LATERAL (
        SELECT
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.lane = l.lane AND j.endpoint = l.endpoint AND j.org_id = $1
        LIMIT $2
    ) AS own
    LIMIT $2
) AS waiting

-- name: owners
-- How many owners have ended jobs of some services, counted up to $3 of each: a loose scan of
-- jobs_ended, one probe for each owner's hash.
--
-- $1 org   $2 services   $3 bound
WITH RECURSIVE owners AS (
    SELECT s.service, hashtextextended(s.service || $1, 0) AS service_hash,
           -2147483649 AS owner_hash, 0 AS number
    FROM unnest($2::text[]) AS s (service)
    UNION ALL
    SELECT wanted.service, wanted.service_hash, next.owner_hash, wanted.number + 1
    FROM owners AS wanted
    CROSS JOIN LATERAL (
        SELECT hashtext(j.owner)::bigint AS owner_hash
        FROM jobs AS j
        WHERE /* include jobs/of_service */
          AND hashtext(j.owner) > wanted.owner_hash
        ORDER BY hashtext(j.owner)
        LIMIT 1
    ) AS next
    WHERE wanted.number < $3::integer
)
SELECT count(*) FROM owners WHERE number > 0

-- name: page
-- A page of an organisation's jobs, newest first: read backwards along the primary key until it is
-- full. Results are left out: a page of them could have any size.
--
-- $1-$6 see page_filter   $7 older than this id   $8 rows to skip   $9 rows at most
SELECT /* include jobs/view_columns */, NULL::bytea AS result
FROM jobs AS j
WHERE /* include jobs/page_filter */
  AND j.id < $7::uuid
ORDER BY j.id DESC
OFFSET $8
LIMIT $9

-- name: page_candidates
-- The ids of the jobs of some services: common table expressions for page_of_services and
-- page_of_services_total, which share $1 to $9. Ended jobs are found by jobs_ended, at most $9 of
-- each service, owner and state; live jobs, all of them, by the indexes of live states.
--
-- With an owner: their jobs and those that anyone may read. Without: everybody's jobs. The owners are
-- then found by a loose scan, one probe each; the caller knows that they are few (owners).
--
-- Sent with custom plans, so that filters which are NULL are not part of the plan.
--
-- $1 org   $2 endpoints   $3 prefix of the flow   $4 states   $5 lane
-- $6 owner: theirs, and what anyone may read   $7 older than this id   $8 services   $9 rows at most
owners AS (
    SELECT s.service, hashtextextended(s.service || $1, 0) AS service_hash,
           -2147483649 AS owner_hash
    FROM unnest($8::text[]) AS s (service)
    UNION ALL
    SELECT wanted.service, wanted.service_hash, next.owner_hash
    FROM owners AS wanted
    CROSS JOIN LATERAL (
        SELECT hashtext(j.owner)::bigint AS owner_hash
        FROM jobs AS j
        WHERE /* include jobs/of_service */
          AND hashtext(j.owner) > wanted.owner_hash
        ORDER BY hashtext(j.owner)
        LIMIT 1
    ) AS next
    WHERE $6::text IS NULL
),
wanted AS (
    SELECT o.service, o.service_hash, o.owner_hash
    FROM owners AS o
    WHERE $6 IS NULL AND o.owner_hash > -2147483649
    UNION
    SELECT o.service, o.service_hash, whose.owner_hash
    FROM owners AS o
    CROSS JOIN (
        SELECT hashtext('*')::bigint UNION SELECT hashtext($6)::bigint
    ) AS whose (owner_hash)
    WHERE $6 IS NOT NULL
),
candidates AS (
    SELECT ended.id
    FROM wanted
    CROSS JOIN (
        VALUES ('completed'::job_state), ('failed'::job_state), ('cancelled'::job_state)
    ) AS f (state)
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM jobs AS j
        WHERE /* include jobs/of_service */
          AND hashtext(j.owner) = wanted.owner_hash AND j.state = f.state
          AND ($6 IS NULL OR j.owner IN ('*', $6))
          AND j.endpoint = ANY ($2::text[])
          AND ($3::text IS NULL OR starts_with(j.flow, $3))
          AND ($5::text IS NULL OR j.lane = $5::text::job_lane)
          AND ($7::uuid IS NULL OR j.id < $7)
        ORDER BY j.id DESC
        LIMIT $9
    ) AS ended
    WHERE $4::text[] IS NULL OR f.state::text = ANY ($4)
    UNION ALL
    SELECT j.id
    FROM jobs AS j
    WHERE j.state = 'queued' AND j.lane IN ('urgent', 'standard', 'bulk')
      AND j.endpoint = ANY ($2) AND j.org_id = $1 AND ($6 IS NULL OR j.owner IN ('*', $6))
      AND ($3 IS NULL OR starts_with(j.flow, $3))
      AND ($4 IS NULL OR 'queued' = ANY ($4))
      AND ($5 IS NULL OR j.lane = $5::text::job_lane)
      AND ($7 IS NULL OR j.id < $7) AND j.run_id IS NULL
    UNION ALL
    SELECT j.id
    FROM jobs AS j
    WHERE j.state IN ('staged', 'retrying')
      AND j.org_id = $1 AND j.endpoint = ANY ($2) AND ($6 IS NULL OR j.owner IN ('*', $6))
      AND ($3 IS NULL OR starts_with(j.flow, $3))
      AND ($4 IS NULL OR j.state = ANY ($4::text[]::job_state[]))
      AND ($5 IS NULL OR j.lane = $5::text::job_lane)
      AND ($7 IS NULL OR j.id < $7) AND j.run_id IS NULL
    UNION ALL
    SELECT j.id
    FROM jobs AS j
    -- All held jobs of everybody: there are at most as many as slots. IS TRUE keeps the planner
    -- from the primary key, by which it would read the organisation's history.
    WHERE j.lease IS NOT NULL
      AND (j.org_id = $1) IS TRUE AND j.endpoint = ANY ($2)
      AND ($6 IS NULL OR j.owner IN ('*', $6))
      AND ($3 IS NULL OR starts_with(j.flow, $3))
      AND ($4 IS NULL OR j.state = ANY ($4::text[]::job_state[]))
      AND ($5 IS NULL OR j.lane = $5::text::job_lane)
      AND ($7 IS NULL OR j.id < $7) AND j.run_id IS NULL
)

-- name: page_filter
-- The filter of a page of jobs: included by page and page_total, which share $1 to $6.
--
-- Tasks are not listed. Their ids are hashes, spread over all values; those of other jobs begin with a
-- time. So a list has bounds on ids, between which there is hardly a task to skip: the id of the year
-- 2004, here, and that of tomorrow, by the caller.
--
-- Sent with custom plans, so that filters which are NULL are not part of the plan.
--
-- $1 org   $2 endpoints   $3 prefix of the flow   $4 states   $5 lane
-- $6 owner: theirs, and what anyone may read
j.org_id = $1 AND j.run_id IS NULL AND j.id >= '01000000-0000-0000-0000-000000000000'
  AND ($2::text[] IS NULL OR j.endpoint = ANY ($2))
  AND ($3::text IS NULL OR starts_with(j.flow, $3))
  AND ($4::text[] IS NULL OR j.state = ANY ($4::text[]::job_state[]))
  AND ($5::text IS NULL OR j.lane = $5::text::job_lane)
  AND ($6::text IS NULL OR j.owner IN ('*', $6))

-- name: page_of_services
-- A page of the jobs of some services, newest first: the jobs of page, for when that would read
-- many jobs of others to find a few. Results are left out: a page of them could have any size.
--
-- $1-$9 see page_candidates; $9 is $10 and $11 together   $10 rows to skip   $11 rows at most
WITH RECURSIVE /* include jobs/page_candidates */,
page AS MATERIALIZED (
    SELECT c.id FROM candidates AS c ORDER BY c.id DESC OFFSET $10 LIMIT $11
)
SELECT /* include jobs/view_columns */, NULL::bytea AS result
FROM page AS p
CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = $1 AND j.id = p.id) AS j
ORDER BY j.id DESC

-- name: page_of_services_total
-- How many jobs the list of page_of_services has, counted up to $9.
--
-- $1-$9 see page_candidates
WITH RECURSIVE /* include jobs/page_candidates */
SELECT count(*) FROM (SELECT FROM candidates LIMIT $9) AS counted

-- name: page_total
-- How many jobs the list of page has, counted up to $7.
--
-- $1-$6 see page_filter   $7 bound   $8 older than this id
SELECT count(*)
FROM (
    SELECT
    FROM jobs AS j
    WHERE /* include jobs/page_filter */
      AND j.id < $8::uuid
    LIMIT $7
) AS counted

-- name: rates_on
-- The rates of its run that a job `a` has to wait for now, and until when: included by stall and
-- explain. That of the whole run has no flow.
SELECT t.flow, CASE t.flow WHEN '' THEN r.per_second ELSE r.key_per_second END AS per_second,
       t.in_step_at
FROM run_limits AS r
JOIN run_tokens AS t ON t.org_id = r.org_id AND t.run = r.run AND (
    t.flow = '' AND r.per_second IS NOT NULL
    OR t.flow = a.flow AND r.key_per_second IS NOT NULL
)
WHERE r.org_id = a.org_id AND r.run = split_part(a.flow, '/', 1)
  AND t.flow IN ('', a.flow) AND t.in_step_at > now()

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

-- name: recent_runs
-- How long the last completed jobs of a kind ran: of a service and an owner, newest first, those of the
-- endpoint among the first $6. Walks jobs_ended, which has the newest at its end.
--
-- $1 org   $2 service   $3 owner   $4 endpoint   $5 flow, or NULL for any   $6 rows to look at
SELECT date_part('epoch', r.finished_at - r.started_at) AS seconds
FROM (SELECT $2::text AS service, hashtextextended($2::text || $1, 0) AS service_hash) AS wanted
CROSS JOIN LATERAL (
    SELECT j.endpoint, j.flow, j.started_at, j.finished_at
    FROM jobs AS j
    WHERE /* include jobs/of_service */
      AND hashtext(j.owner) = hashtext($3::text) AND j.owner = $3 AND j.state = 'completed'
    ORDER BY j.id DESC
    LIMIT $6::integer
) AS r
WHERE r.endpoint = $4 AND ($5::text IS NULL OR r.flow = $5) AND r.started_at IS NOT NULL

-- name: recent_task_runs
-- How long the last completed tasks of a run ran, those with the highest numbers.
--
-- $1 org   $2 run   $3 rows at most
SELECT date_part('epoch', j.finished_at - j.started_at) AS seconds
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.state = 'completed'
ORDER BY j.task_index DESC
LIMIT $3::integer

-- name: release_claim
-- Release a claim whose answer was lost with its connection: if it was committed, this worker holds
-- jobs that it does not know. The lease belongs to that claim alone, so every job with it is unknown.
--
-- release: dispatching -> queued; cancel_requested -> cancelled.   $1 lease   $2 seconds to keep
WITH unknown AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, octet_length(j.payload) AS payload_bytes
    FROM jobs AS j
    WHERE j.lease IS NOT NULL AND j.lease >> 40 = $1::bigint >> 40 AND j.lease = $1::bigint
    FOR UPDATE
),
changed AS (
    UPDATE jobs AS j
    SET state = CASE j.state WHEN 'cancel_requested' THEN 'cancelled' ELSE 'queued' END::job_state,
        lease = NULL, run_deadline = NULL, updated_at = now(),
        interruptions = least(j.interruptions + 1, 32767),
        payload = CASE
            WHEN j.state <> 'cancel_requested' OR j.run_id IS NOT NULL OR j.keeps_input
            THEN j.payload
        END,
        error_code = CASE j.state WHEN 'cancel_requested' THEN 'cancelled' ELSE j.error_code END,
        error_message = CASE j.state
            WHEN 'cancel_requested' THEN 'cancelled before it started' ELSE j.error_message
        END,
        finished_at = CASE j.state WHEN 'cancel_requested' THEN now() END,
        expires_at = CASE
            WHEN j.state <> 'cancel_requested' THEN NULL
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_failed_seconds, $2::integer) * interval '1 second'
        END
    FROM unknown AS u
    WHERE j.org_id = u.org_id AND j.id = u.id AND j.lease = u.lease
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              u.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous
),
metered AS (
    /* include usage/meter */
),
notified AS (
    /* include webhooks/write_deliveries_from_changed */
)
SELECT c.id FROM changed AS c

-- name: result
-- The whole result of a job that has completed.
--
-- $1 org   $2 id
SELECT j.result
FROM jobs AS j
WHERE j.org_id = $1 AND j.id = $2 AND j.result IS NOT NULL

-- name: row_transaction
-- The transaction that wrote the current version of a job's row, as a number that never wraps around:
-- included by the statements that search for changes. A row holds only the lower half of it; it was
-- written before next_id of `horizon`, and less than one wrap of the lower half ago, because no job is
-- kept that long.
(h.next_id - ((h.next_id - j.xmin::text::bigint) & 4294967295))

-- name: served_by
-- The workers that serve a job `a`, and whether each was seen within its lease time for the job's lane:
-- included by stall and explain, which give `serving`. `threads_held`: how many threads that
-- handlers do not release keep it from claiming the job.
SELECT w.boot, w.silent_for, w.slots[array_position(w.lanes, a.lane::text)] AS slots,
       w.reserved[array_position(w.lanes, a.lane::text)] AS reserved,
       w.silent_for <= interval '1 second' * CASE a.lane
           WHEN 'urgent' THEN w.urgent_seconds
           WHEN 'standard' THEN w.standard_seconds
           WHEN 'bulk' THEN w.bulk_seconds
       END AS is_alive,
       (w.threads_held ->> a.endpoint)::integer AS threads_held
FROM serving AS w
WHERE a.endpoint = ANY (w.endpoints) AND a.lane::text = ANY (w.lanes)

-- name: set_progress
-- The latest progress of running jobs, fenced by the lease. No transition.
UPDATE jobs AS j
SET progress = p.fraction, progress_note = coalesce(p.note, j.progress_note), updated_at = now()
FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::real[], $5::text[])
    AS p (org_id, id, lease, fraction, note)
WHERE j.org_id = p.org_id AND j.id = p.id AND j.lease = p.lease

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
           END::job_state AS state
    FROM unnest(
        $1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[],
        $7::double precision[], $8::double precision[]
    ) AS s (org_id, id, lease, event, error_code, error_message, delay_seconds, ran_seconds)
    JOIN jobs AS j ON j.org_id = s.org_id AND j.id = s.id AND j.lease = s.lease
    FOR UPDATE OF j
),
changed AS (
    UPDATE jobs AS j
    SET state = n.state, lease = NULL, run_deadline = NULL, updated_at = now(),
        failures = j.failures + (n.event IN ('fail', 'retry'))::integer,
        interruptions = least(j.interruptions + (n.event = 'release')::integer, 32767),
        unreachables = least(j.unreachables + (n.event = 'unreachable')::integer, 32767),
        run_seconds = j.run_seconds + n.ran_seconds,
        error_code = CASE
            WHEN n.state = 'cancelled' THEN 'cancelled'
            WHEN n.event = 'release' THEN j.error_code
            WHEN n.event = 'retry' AND n.state = 'failed' AND j.run_id IS NULL
            THEN 'max_retries_exhausted'
            ELSE n.error_code
        END,
        error_message = CASE
            WHEN n.state = 'cancelled' THEN 'cancelled while it ran'
            WHEN n.event = 'release' THEN j.error_message
            WHEN n.event = 'retry' AND n.state = 'failed' THEN format(
                'failed %s; last: %s: %s',
                CASE j.failures WHEN 0 THEN 'once' ELSE (j.failures + 1) || ' times' END,
                n.error_code, n.error_message
            )
            ELSE n.error_message
        END,
        run_at = CASE
            WHEN n.state = 'retrying' THEN now() + n.delay_seconds * interval '1 second'
            ELSE j.run_at
        END,
        started_at = CASE
            WHEN n.state IN ('failed', 'cancelled')
            THEN coalesce(j.started_at, now() - n.ran_seconds * interval '1 second')
        END,
        payload = CASE
            WHEN n.state NOT IN ('failed', 'cancelled') OR j.run_id IS NOT NULL OR j.keeps_input
            THEN j.payload
        END,
        finished_at = CASE WHEN n.state IN ('failed', 'cancelled') THEN now() END,
        expires_at = CASE
            WHEN n.state NOT IN ('failed', 'cancelled') THEN NULL
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_failed_seconds, $9::integer) * interval '1 second'
        END
    FROM next AS n
    WHERE j.org_id = n.org_id AND j.id = n.id AND j.lease = n.lease AND n.state IS NOT NULL
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              n.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous,
              CASE n.event
                  WHEN 'release' THEN 'interrupted'
                  WHEN 'unreachable' THEN 'target_unreachable'
                  WHEN 'postpone' THEN 'postponed'
                  WHEN 'acknowledge_cancel' THEN 'cancelled'
                  ELSE 'failed'
              END AS outcome,
              n.error_code AS attempt_code, n.error_message AS attempt_message, j.dispatched_at,
              coalesce(old.started_at, now() - n.ran_seconds * interval '1 second') AS began_at,
              CASE j.state WHEN 'retrying' THEN j.run_at END AS next_run_at,
              j.failures + j.crashes + j.interruptions + j.unreachables AS efforts
),
metered AS (
    /* include usage/meter */
),
notified AS (
    /* include webhooks/write_deliveries_from_changed */
),
alerted AS (
    /* include job_events/alert */
),
noted AS (
    /* include job_events/attempt */
)
SELECT c.org_id, c.id, c.state::text AS state, c.error_code FROM changed AS c

-- name: stall
-- Why jobs are stalled, for those that have been waiting or held for too long. Used for single jobs that
-- are old enough, never for a whole queue.
--
-- A job that only waits behind others is not stalled: a live worker serves it, no limit blocks it, and
-- its queue moves.
--
--   target_unreachable  its last attempt could not reach its target, or its remote does not answer
--   no_worker           no worker that was seen within the lane's time serves its endpoint and lane
--   threads_held        no worker that serves it has a free thread for it
--   concurrency_limit   a limit on its endpoint, org, flow or run is used up
--   rate_limit          its run, or its flow of it, has just used up its rate
--   heartbeat_lost      its holder has been silent for half of the lane's time, or has no row
--
-- A worker is judged by its own lease times. Held jobs are counted as claim_limited counts them,
-- once, and only if a limit applies to any of the jobs.
--
-- $1 organisations, $2 ids   $3 lanes, $4 how long a job of each may wait, in seconds
WITH asked AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, j.lane, j.endpoint, j.flow, j.lease, j.unreachables,
           j.error_code, l.seconds * interval '1 second' AS stall_after,
           now() - j.created_at AS age,
           now() - greatest(j.run_at, j.updated_at) AS due_for
    FROM unnest($1::text[], $2::uuid[]) AS a (org_id, id)
    JOIN jobs AS j ON j.org_id = a.org_id AND j.id = a.id
    JOIN unnest($3::text[], $4::double precision[]) AS l (lane, seconds) ON l.lane = j.lane::text
),
serving AS MATERIALIZED (
    SELECT w.boot, w.name, w.endpoints, w.lanes, w.slots, w.reserved, w.threads_held,
           now() - w.last_seen_at AS silent_for,
           w.urgent_seconds, w.standard_seconds, w.bulk_seconds
    FROM workers AS w
    WHERE w.died_at IS NULL
),
held AS MATERIALIZED (
    SELECT j.endpoint, j.org_id, j.flow, count(*) AS jobs
    FROM jobs AS j
    WHERE j.lease IS NOT NULL
    GROUP BY j.endpoint, j.org_id, j.flow
)
SELECT a.org_id, a.id,
       CASE
           WHEN a.lease IS NOT NULL THEN CASE
               WHEN a.lease >> 40 = 0 THEN (
                   SELECT 'target_unreachable'
                   FROM remote_calls AS r
                   WHERE r.org_id = a.org_id AND r.job_id = a.id AND r.faults > 0
               )
               WHEN NOT EXISTS (
                   SELECT FROM (/* include jobs/held_by */) AS holder WHERE holder.is_heard
               ) THEN 'heartbeat_lost'
           END
           WHEN a.state NOT IN ('staged', 'queued', 'retrying') THEN NULL
           WHEN a.age > a.stall_after AND a.unreachables > 0 AND a.error_code = 'target_unreachable'
               THEN 'target_unreachable'
           WHEN a.due_for <= a.stall_after THEN NULL
           WHEN NOT EXISTS (
               SELECT FROM (/* include jobs/served_by */) AS server WHERE server.is_alive
           ) THEN 'no_worker'
           WHEN NOT EXISTS (
               SELECT FROM (/* include jobs/served_by */) AS server
               WHERE server.is_alive AND server.threads_held IS NULL
           ) THEN 'threads_held'
           WHEN EXISTS (
               SELECT FROM (/* include jobs/limits_on */) AS l WHERE l.held_max <= l.held
           ) THEN 'concurrency_limit'
           WHEN EXISTS (/* include jobs/rates_on */) THEN 'rate_limit'
       END AS reason
FROM asked AS a

-- name: submit
-- Create jobs: one statement for every caller that arrived while the last one was in flight.
--
-- -> queued, or staged when due later. ON CONFLICT covers both the idempotency key and the id: a
-- statement whose commit was lost with its connection is simply sent again. Returns the ids that it
-- created; the caller looks up the others (find_existing).
--
-- The lane is spelt out because casting text to an enum reads the catalogue for every row.
--
-- $1-$11 one array per common column   $12 the options that few jobs have, as JSON, or NULL
INSERT INTO jobs (
    org_id, id, lane, endpoint, flow, failures_max, payload, owner, idempotency_key,
    fingerprint, request_id, run_at, state, start_deadline, timeout_seconds, keep_completed_seconds,
    keep_failed_seconds, webhook, keeps_input, traceparent
)
SELECT s.org_id, s.id,
       CASE s.lane
           WHEN 'urgent' THEN 'urgent'::job_lane
           WHEN 'standard' THEN 'standard'::job_lane
           WHEN 'bulk' THEN 'bulk'::job_lane
       END,
       s.endpoint, s.flow, s.failures_max, s.payload, coalesce(s.owner, ''),
       s.idempotency_key, s.fingerprint, s.request_id, due.at,
       CASE WHEN due.at > now() THEN 'staged' ELSE 'queued' END::job_state,
       coalesce(
           (s.options ->> 'start_deadline')::timestamptz,
           now() + (s.options ->> 'start_within_seconds')::double precision * interval '1 second'
       ),
       (s.options ->> 'timeout_seconds')::real,
       (s.options ->> 'keep_completed_seconds')::integer,
       (s.options ->> 'keep_failed_seconds')::integer,
       (s.options ->> 'webhook')::smallint,
       coalesce((s.options ->> 'keeps_input')::boolean, true),
       s.options ->> 'traceparent'
FROM unnest(
    $1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::bytea[],
    $8::text[], $9::text[], $10::bytea[], $11::text[], $12::jsonb[]
) AS s (
    org_id, id, lane, endpoint, flow, failures_max, payload, owner, idempotency_key,
    fingerprint, request_id, options
)
CROSS JOIN LATERAL (
    SELECT coalesce(
        (s.options ->> 'run_at')::timestamptz,
        now() + (s.options ->> 'delay_seconds')::double precision * interval '1 second',
        now()
    ) AS at
) AS due
ON CONFLICT DO NOTHING
RETURNING id, state = 'staged' AS staged

-- name: submit_and_notify
-- submit with its notification in the same transaction: see submit_plain_and_notify.
--
-- $13 channel   $14 payload
WITH created AS (
    /* include jobs/submit */
)
SELECT c.id, c.staged, notified.ok
FROM created AS c
CROSS JOIN (SELECT pg_notify($13::text, $14::text) IS NULL AS ok) AS notified

-- name: submit_plain
-- Create jobs that can meet no conflict: no key, no option. -> queued
--
-- As submit, without its ON CONFLICT, which costs a fifth of it. Only our own id could exist
-- already, from a statement whose answer was lost: then submit is sent instead.
--
-- $1-$9 one array per column
INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id)
SELECT s.org_id, s.id,
       CASE s.lane
           WHEN 'urgent' THEN 'urgent'::job_lane
           WHEN 'standard' THEN 'standard'::job_lane
           WHEN 'bulk' THEN 'bulk'::job_lane
       END,
       s.endpoint, s.flow, s.failures_max, s.payload, coalesce(s.owner, ''),
       s.request_id
FROM unnest(
    $1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::bytea[],
    $8::text[], $9::text[]
) AS s (org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id)

-- name: submit_plain_and_notify
-- submit_plain with its notification in the same transaction: for a few jobs at a quiet time, when
-- another round trip would show and nobody else wants the lock that NOTIFY takes.
--
-- $10 channel   $11 payload
WITH created AS (
    /* include jobs/submit_plain */
)
SELECT pg_notify($10::text, $11::text)

-- name: view_columns
-- What a reader sees of a job, except its result: included by get, list and page, in the
-- order of JobView. A result's length is read without the result. The clock is read after the rows, so
-- that no age is negative.
j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow, j.state::text AS state,
       j.failures, j.failures_max, j.crashes, j.interruptions, j.unreachables,
       j.created_at, j.run_at, j.dispatched_at, j.started_at, j.finished_at, j.updated_at,
       j.expires_at, j.start_deadline, clock_timestamp() AS read_at, j.progress, j.progress_note,
       j.idempotency_key, j.request_id, j.owner, j.error_code, j.error_message,
       j.execution_id, octet_length(j.result) AS result_bytes
