-- Claim the llm jobs that were chosen, and bind each to its target. queued -> dispatching.
--
-- The transaction has held the lock of begin_claim.sql since before it read the targets, so the permits
-- are still free. A job that was cancelled meanwhile is not claimed; the oldest of its queue are, in
-- order. The turns of the targets are written with the jobs that changed them.
--
-- A webhook for the phases of a job (4) gets this state only if a model must be loaded; otherwise (5)
-- the caller sees nothing before the job starts.
--
-- $1 lease   $2 endpoints, $3 timeout of each
-- $4-$10 picks: lane, endpoint, org, flow, position in its queue from 1 on, target, loading
-- $11-$17 targets: name, model, when its turn began, urgent streak, picks, ended, served
WITH picks AS MATERIALIZED (
    SELECT p.lane::job_lane AS lane, p.endpoint COLLATE "C" AS endpoint,
           p.org_id COLLATE "C" AS org_id, p.flow COLLATE "C" AS flow, p.place, p.target, p.loading,
           p.rank
    FROM unnest(
        $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[], $9::text[], $10::boolean[]
    ) WITH ORDINALITY AS p (lane, endpoint, org_id, flow, place, target, loading, rank)
),
oldest AS MATERIALIZED (
    SELECT l.lane, l.endpoint, l.org_id, l.flow, ready.tid, ready.run_at, ready.id
    FROM (
        SELECT p.lane, p.endpoint, p.org_id, p.flow, count(*) AS jobs
        FROM picks AS p
        GROUP BY p.lane, p.endpoint, p.org_id, p.flow
    ) AS l
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.run_at, j.id
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.lane = l.lane AND j.endpoint = l.endpoint
          AND j.org_id = l.org_id AND j.flow = l.flow
        ORDER BY j.run_at, j.id
        LIMIT l.jobs
        FOR UPDATE SKIP LOCKED
    ) AS ready
),
picked AS MATERIALIZED (
    SELECT o.tid, p.target, p.loading, p.rank
    FROM (
        SELECT o.*, row_number() OVER (
                   PARTITION BY o.lane, o.endpoint, o.org_id, o.flow ORDER BY o.run_at, o.id
               ) AS place
        FROM oldest AS o
    ) AS o
    JOIN picks AS p ON p.lane = o.lane AND p.endpoint = o.endpoint AND p.org_id = o.org_id
        AND p.flow = o.flow AND p.place = o.place
),
claimed AS (
    UPDATE jobs AS j
    SET state = 'dispatching', lease = $1::bigint, updated_at = now(),
        dispatched_at = greatest(now(), j.created_at),
        webhook = CASE
            WHEN j.webhook IN (4, 5) THEN CASE WHEN p.loading THEN 4 ELSE 5 END
            ELSE j.webhook
        END,
        run_deadline = now() + coalesce(
            j.timeout_seconds,
            (
                SELECT s.timeout
                FROM unnest($2::text[], $3::double precision[]) AS s (endpoint, timeout)
                WHERE s.endpoint = j.endpoint
            )
        ) * interval '1 second'
    FROM picked AS p
    WHERE j.ctid = p.tid
    RETURNING j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow, j.payload,
              j.failures + j.crashes + 1 AS attempt, j.failures, j.unreachables,
              j.timeout_seconds, j.request_id, j.traceparent, j.run_id, j.webhook, p.target,
              p.loading, p.rank,
              date_part('epoch', now() - greatest(j.run_at, j.created_at))::real AS waited
),
assigned AS (
    INSERT INTO llm_assignments (org_id, job_id, target, lease, loading)
    SELECT c.org_id, c.id, c.target, $1::bigint, c.loading FROM claimed AS c
    ON CONFLICT (org_id, job_id) DO UPDATE
    SET target = excluded.target, lease = excluded.lease, loading = excluded.loading,
        assigned_at = now()
),
turned AS (
    INSERT INTO llm_targets (
        name, model, turn_began_at, urgent_streak, picks, ended, served
    )
    SELECT t.name, t.model, to_timestamp(t.began), t.urgent_streak, t.picks, t.ended::jsonb,
           t.served::jsonb
    FROM unnest(
        $11::text[], $12::text[], $13::double precision[], $14::integer[], $15::bigint[], $16::text[],
        $17::text[]
    ) AS t (name, model, began, urgent_streak, picks, ended, served)
    WHERE EXISTS (SELECT FROM claimed AS c WHERE c.target = t.name)
    ON CONFLICT (name) DO UPDATE
    SET model = excluded.model, turn_began_at = excluded.turn_began_at,
        urgent_streak = excluded.urgent_streak, picks = excluded.picks, ended = excluded.ended,
        served = excluded.served, seen_at = now()
),
moved AS (
    SELECT c.org_id, c.id, 'dispatching'::job_state AS state, 'queued'::job_state AS previous,
           c.endpoint, c.flow, c.attempt AS attempts, c.run_id, c.webhook, NULL AS error_code
    FROM claimed AS c
),
told_moves AS (
    /* include coatcheck.core:webhooks/write_deliveries_from_moved.sql */
)
SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.payload, c.attempt, c.failures, c.unreachables,
       c.timeout_seconds, c.request_id, c.traceparent, c.waited, c.target, c.loading, (
           SELECT true FROM job_events AS e
           WHERE e.org_id = c.org_id AND e.job_id = c.id AND e.kind IN ('text', 'json', 'binary')
           LIMIT 1
       ) IS NOT NULL AS had_output
FROM claimed AS c
ORDER BY c.rank
