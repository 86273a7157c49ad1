-- name: assignments
-- The targets that jobs were assigned to last, and whether the jobs are still held there.
--
-- $1 organisations, $2 ids
SELECT a.org_id, a.job_id, a.target, a.loading, j.lease IS NOT DISTINCT FROM a.lease AS current
FROM unnest($1::text[], $2::uuid[]) AS w (org_id, id)
JOIN llm_assignments AS a ON a.org_id = w.org_id AND a.job_id = w.id
JOIN jobs AS j ON j.org_id = a.org_id AND j.id = a.job_id

-- name: begin_claim
-- Begin the transaction of a claim and take its lock ("CoatLl"): llm jobs are claimed one claim at a
-- time. The lock is held until the transaction ends. It is taken before the snapshot of the first
-- read, so that this read counts every permit of earlier claims.
BEGIN;
SELECT pg_advisory_xact_lock(x'436F61744C6C'::bigint)

-- name: claim
-- Claim the llm jobs that were chosen, and bind each to its target. queued -> dispatching.
--
-- The transaction has held the lock of begin_claim since before it read the targets, so the permits
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
    /* include coatcheck.core:webhooks/write_deliveries_from_moved */
)
SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.payload, c.attempt, c.failures, c.unreachables,
       c.timeout_seconds, c.request_id, c.traceparent, c.waited, c.target, c.loading, (
           SELECT true FROM job_events AS e
           WHERE e.org_id = c.org_id AND e.job_id = c.id AND e.kind IN ('text', 'json', 'binary')
           LIMIT 1
       ) IS NOT NULL AS had_output
FROM claimed AS c
ORDER BY c.rank

-- name: count_drop
-- Count that a target dropped a chat in mid-answer, though it answers others. Fenced by the lease, which
-- the job and its assignment must both still have. Each lease counts once: a repeat of this statement
-- after its answer was lost changes nothing. Returns the drops so far; no row if another worker holds
-- the job by now. Uses the primary keys.
--
-- $1 organisation   $2 job   $3 lease
UPDATE llm_assignments AS a
SET drops = a.drops + (a.dropped_lease IS DISTINCT FROM a.lease)::integer, dropped_lease = a.lease
FROM jobs AS j
WHERE a.org_id = $1 AND a.job_id = $2 AND a.lease = $3::bigint
  AND j.org_id = a.org_id AND j.id = a.job_id AND j.lease = a.lease
RETURNING a.drops

-- name: delete_abandoned
-- Delete the abandoned chats that no retry may join any more, some at a time. Uses
-- llm_abandoned_left. Not limited to one organisation: only the maintenance loop calls it.
--
-- $1 seconds since their callers left   $2 rows at most
WITH old AS MATERIALIZED (
    SELECT a.org_id, a.job_id
    FROM llm_abandoned AS a
    WHERE a.left_at <= now() - $1::double precision * interval '1 second'
    ORDER BY a.left_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM llm_abandoned AS a USING old AS o
WHERE a.org_id = o.org_id AND a.job_id = o.job_id
RETURNING a.job_id

-- name: is_for_its_caller
-- Whether only the synchronous caller can get a chat: with an idempotency key others may ask for it,
-- and a webhook is sent whether or not anybody waits. Uses the primary key of jobs.
--
-- $1 organisation   $2 job
SELECT j.idempotency_key IS NULL AND j.webhook IS NULL AS is_for_its_caller
FROM jobs AS j
WHERE j.org_id = $1 AND j.id = $2

-- name: join_abandoned
-- Join the oldest abandoned chat, for one retry of the same caller with the same body. Uses
-- llm_abandoned_digest. Skips a row that another retry is joining: of two retries at once, each gets
-- its own job or none. No row if there is nothing to join.
--
-- $1 organisation   $2 owner   $3 digest   $4 seconds since its caller left at most
WITH free AS MATERIALIZED (
    SELECT a.org_id, a.job_id
    FROM llm_abandoned AS a
    WHERE a.org_id = $1 AND a.digest = $3::bytea AND a.owner = $2
      AND a.left_at > now() - $4::double precision * interval '1 second'
    ORDER BY a.job_id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM llm_abandoned AS a USING free AS f
    WHERE a.org_id = f.org_id AND a.job_id = f.job_id
    RETURNING a.org_id, a.job_id
)
SELECT j.id, j.state::text AS state
FROM taken AS t
JOIN jobs AS j ON j.org_id = t.org_id AND j.id = t.job_id

-- name: limits
-- The concurrency limits of some organisations, and how many jobs each limit still allows. Counted as
-- in claims/held, by claims whose lock the transaction holds as well.
--
-- $1 organisations
WITH held AS MATERIALIZED (
    SELECT j.endpoint, j.org_id, j.flow, count(*) AS jobs
    FROM jobs AS j
    WHERE j.lease IS NOT NULL
    GROUP BY j.endpoint, j.org_id, j.flow
)
SELECT c.org_id, c.scope, c.name, c.held_max - (
           SELECT coalesce(sum(h.jobs), 0)
           FROM held AS h
           WHERE CASE c.scope
               WHEN 'org' THEN h.org_id = c.org_id
               WHEN 'flow' THEN h.org_id = c.org_id AND h.flow = c.name
               WHEN 'endpoint' THEN h.endpoint = c.name AND c.org_id IN ('*', h.org_id)
           END
       )::integer AS free
FROM concurrency_limits AS c
WHERE c.org_id = '*' OR c.org_id = ANY ($1::text[])

-- name: mark_abandoned
-- Record that the synchronous caller of a chat left, so that a retry may join it. Uses the primary key
-- of jobs.
--
-- Not a job with an idempotency key: the key leads to it, and others may wait for it. Not a job with a
-- webhook, whose receiver is part of the request. Not a job that has completed meanwhile: its payload
-- was deleted at its end, so nothing can show whether a retry asks the same.
--
-- Returns a row if the chat can be joined.
--
-- $1 organisation   $2 job
INSERT INTO llm_abandoned (org_id, job_id, owner, digest)
SELECT j.org_id, j.id, j.owner, sha256(j.payload)
FROM jobs AS j
WHERE j.org_id = $1 AND j.id = $2 AND j.payload IS NOT NULL AND j.idempotency_key IS NULL
  AND j.webhook IS NULL
ON CONFLICT (org_id, job_id) DO UPDATE SET left_at = now()
RETURNING job_id

-- name: mark_reachable
-- A target has answered: claims may use it again.   $1 name
UPDATE llm_targets
SET unreachable_since = NULL, next_try_at = NULL, last_error = NULL, seen_at = now()
WHERE name = $1 AND unreachable_since IS NOT NULL

-- name: mark_unreachable
-- A target could not be reached: claims skip it until it is probed again.
--
-- $1 name   $2 what went wrong   $3 seconds until the next try
INSERT INTO llm_targets (name, unreachable_since, next_try_at, last_error)
VALUES ($1, now(), now() + $3::double precision * interval '1 second', $2)
ON CONFLICT (name) DO UPDATE
SET unreachable_since = coalesce(llm_targets.unreachable_since, now()),
    next_try_at = excluded.next_try_at, last_error = excluded.last_error, seen_at = now()

-- name: removed_with_jobs
-- A part of core's maintenance/prune: deletes the assignments of the jobs in `old`.
DELETE FROM llm_assignments AS a USING old AS o WHERE a.org_id = o.org_id AND a.job_id = o.id

-- name: retry_now
-- A target is reachable again: make the jobs that wait for a target due now, some at a time.
-- maintenance/due_jobs.py queues them. All such jobs, because a job has no target until it is claimed.
--
-- $1 endpoints   $2 jobs at most
WITH waiting AS MATERIALIZED (
    SELECT j.org_id, j.id
    FROM jobs AS j
    WHERE j.state = 'retrying' AND j.error_code = 'target_unreachable'
      AND j.endpoint = ANY ($1::text[]) AND j.run_at > now()
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs AS j
SET run_at = now(), updated_at = now()
FROM waiting AS w
WHERE j.org_id = w.org_id AND j.id = w.id
RETURNING j.id

-- name: target_loads
-- The targets of a claim: their turns, whether they can be reached, and the models whose jobs they
-- hold. A permit in use is a held job, which is counted here and stored nowhere. Times are seconds
-- since 1970. `limited`: whether any concurrency limit is set; most deployments have none.
--
-- $1 names   $2 endpoints
WITH held AS MATERIALIZED (
    SELECT a.target, j.flow AS model, count(*) AS jobs
    FROM jobs AS j
    JOIN llm_assignments AS a ON a.org_id = j.org_id AND a.job_id = j.id AND a.lease = j.lease
    WHERE j.lease IS NOT NULL AND j.endpoint = ANY ($2::text[])
    GROUP BY a.target, j.flow
)
SELECT n.name, t.model, extract(epoch FROM t.turn_began_at)::double precision AS turn_began,
       coalesce(t.urgent_streak, 0) AS urgent_streak, coalesce(t.picks, 0) AS picks,
       t.ended, t.served, t.unreachable_since IS NOT NULL AS unreachable,
       extract(epoch FROM t.next_try_at)::double precision AS next_try,
       extract(epoch FROM statement_timestamp())::double precision AS now,
       array(SELECT h.model FROM held AS h WHERE h.target = n.name) AS at_work_on,
       (SELECT coalesce(sum(h.jobs), 0) FROM held AS h WHERE h.target = n.name)::integer AS held,
       (SELECT EXISTS (SELECT FROM concurrency_limits)) AS limited
FROM unnest($1::text[]) AS n (name)
LEFT JOIN llm_targets AS t ON t.name = n.name

-- name: target_states
-- Whether each target can be reached, as last recorded.
SELECT t.name, t.unreachable_since, t.next_try_at, t.last_error
FROM llm_targets AS t
ORDER BY t.name

-- name: waiting_queues
-- The queues of waiting llm jobs: for each organisation and model, since when its oldest few jobs wait,
-- in seconds since 1970.
--
-- A loose scan of jobs_ready, as in jobs/ready_flows: each step of the recursion is one probe for
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
