-- name: assignments
-- The targets that jobs were assigned to last, and whether the jobs are still held there.
SELECT a.org_id, a.job_id, a.target, a.loading, j.lease IS NOT DISTINCT FROM a.lease AS current
FROM unnest(:orgs::text[], :jobs::uuid[]) AS w (org_id, id)
JOIN llm_assignments AS a ON a.org_id = w.org_id AND a.job_id = w.id
JOIN jobs AS j ON j.org_id = a.org_id AND j.id = a.job_id

-- name: begin_claim
-- Begin the transaction of a claim and take its lock ("CoatLl"): llm jobs are claimed one claim at a
-- time. The lock is held until the transaction ends. It is taken before the snapshot of the first
-- read, so that this read counts every permit of earlier claims.
-- The wait is bounded: all workers of a process share the connection, and the holder may be frozen.
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = '5s';
SELECT pg_advisory_xact_lock(x'436F61744C6C'::bigint)

-- name: claim
-- Claim the llm jobs that were chosen, and bind each to its target. queued -> dispatching.
--
-- The transaction has held the lock of begin_claim since before it read the targets, so the permits
-- are still free. The turns of the targets are written with the jobs that changed them. A webhook for
-- the phases of a job is shown this state only if a model must be loaded; otherwise the caller sees
-- nothing before the job starts.
--
-- As core's claims/taken, and :targets of each pick; `shown` is whether its model must be loaded
-- :turn_names of targets, :models, :began, :urgent_streaks, :picks, :ended, :served_orgs of each
WITH /* include coatcheck.core:claims/taken */,
assigned AS (
    INSERT INTO llm_assignments (org_id, job_id, target, lease, loading)
    SELECT c.org_id, c.id, (:targets::text[])[c.pick], :lease::bigint, (:shown::boolean[])[c.pick]
    FROM claimed AS c
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
        :turn_names::text[], :models::text[], :began::double precision[],
        :urgent_streaks::integer[], :picks::bigint[], :ended::text[], :served_orgs::text[]
    ) AS t (name, model, began, urgent_streak, picks, ended, served)
    WHERE EXISTS (SELECT FROM claimed AS c WHERE (:targets::text[])[c.pick] = t.name)
    ON CONFLICT (name) DO UPDATE
    SET model = excluded.model, turn_began_at = excluded.turn_began_at,
        urgent_streak = excluded.urgent_streak, picks = excluded.picks, ended = excluded.ended,
        served = excluded.served, seen_at = now()
)
SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.payload, c.attempt, c.failures, c.unreachables,
       c.timeout_seconds, c.request_id, c.pick, c.traceparent, c.waited, (
           SELECT true FROM job_events AS e
           WHERE e.org_id = c.org_id AND e.job_id = c.id AND e.kind IN ('text', 'json', 'binary')
           LIMIT 1
       ) IS NOT NULL AS had_output
FROM claimed AS c

-- name: count_drop
-- Count that a target dropped a chat in mid-answer, though it answers others. Fenced by the lease, which
-- the job and its assignment must both still have. Each lease counts once: a repeat of this statement
-- after its answer was lost changes nothing. Returns the drops so far; no row if another worker holds
-- the job by now. Uses the primary keys.
UPDATE llm_assignments AS a
SET drops = a.drops + (a.dropped_lease IS DISTINCT FROM a.lease)::integer, dropped_lease = a.lease
FROM jobs AS j
WHERE a.org_id = :org AND a.job_id = :job AND a.lease = :lease::bigint
  AND j.org_id = a.org_id AND j.id = a.job_id AND j.lease = a.lease
RETURNING a.drops

-- name: delete_abandoned
-- Delete the abandoned chats that no retry may join any more, some at a time. Uses
-- llm_abandoned_left. Not limited to one organisation: only the maintenance loop calls it.
WITH old AS MATERIALIZED (
    SELECT a.org_id, a.job_id
    FROM llm_abandoned AS a
    WHERE a.left_at <= now() - :seconds::double precision * interval '1 second'
    ORDER BY a.left_at
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM llm_abandoned AS a USING old AS o
WHERE a.org_id = o.org_id AND a.job_id = o.job_id
RETURNING a.job_id

-- name: is_for_its_caller
-- Whether only the synchronous caller can get a chat: with an idempotency key others may ask for it,
-- and a webhook is sent whether or not anybody waits. Uses the primary key of jobs.
SELECT j.idempotency_key IS NULL AND j.webhook IS NULL AS is_for_its_caller
FROM jobs AS j
WHERE j.org_id = :org AND j.id = :job

-- name: join_abandoned
-- Join the oldest abandoned chat, for one retry of the same caller with the same body. Uses
-- llm_abandoned_digest. Skips a row that another retry is joining: of two retries at once, each gets
-- its own job or none. No row if there is nothing to join.
--
-- The row stays, with the retry that joined: repeated after a lost answer, a retry joins the same chat.
WITH free AS MATERIALIZED (
    SELECT a.org_id, a.job_id
    FROM llm_abandoned AS a
    WHERE a.org_id = :org AND a.digest = :digest::bytea AND a.owner = :owner
      AND a.left_at > now() - :seconds::double precision * interval '1 second'
      AND (a.joined_by IS NULL OR a.joined_by = :retry::uuid)
    ORDER BY a.joined_by, a.job_id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE llm_abandoned AS a SET joined_by = :retry::uuid
    FROM free AS f
    WHERE a.org_id = f.org_id AND a.job_id = f.job_id
    RETURNING a.org_id, a.job_id
)
SELECT j.id, j.state::text AS state
FROM taken AS t
JOIN jobs AS j ON j.org_id = t.org_id AND j.id = t.job_id

-- name: mark_abandoned
-- Record that the synchronous caller of a chat left, so that a retry may join it. Uses the primary key
-- of jobs.
--
-- Not a job with an idempotency key: the key leads to it, and others may wait for it. Not a job with a
-- webhook, whose receiver is part of the request. Not a job that has completed meanwhile: its payload
-- was deleted at its end, so nothing can show whether a retry asks the same.
--
-- Returns a row if the chat can be joined.
INSERT INTO llm_abandoned (org_id, job_id, owner, digest)
SELECT j.org_id, j.id, j.owner, sha256(j.payload)
FROM jobs AS j
WHERE j.org_id = :org AND j.id = :job AND j.payload IS NOT NULL AND j.idempotency_key IS NULL
  AND j.webhook IS NULL
ON CONFLICT (org_id, job_id) DO UPDATE SET left_at = now(), joined_by = NULL
RETURNING job_id

-- name: mark_reachable
-- A target has answered: claims may use it again.
UPDATE llm_targets
SET unreachable_since = NULL, next_try_at = NULL, last_error = NULL, seen_at = now()
WHERE name = :target AND unreachable_since IS NOT NULL

-- name: mark_unreachable
-- A target could not be reached: claims skip it until it is probed again.
INSERT INTO llm_targets (name, unreachable_since, next_try_at, last_error)
VALUES (:target, now(), now() + :retry_seconds::double precision * interval '1 second', :error)
ON CONFLICT (name) DO UPDATE
SET unreachable_since = coalesce(llm_targets.unreachable_since, now()),
    next_try_at = excluded.next_try_at, last_error = excluded.last_error, seen_at = now()

-- name: removed_with_jobs
-- A part of core's maintenance/prune: deletes the assignments of the jobs in `old`.
DELETE FROM llm_assignments AS a USING old AS o WHERE a.org_id = o.org_id AND a.job_id = o.id

-- name: retry_now
-- A target is reachable again: make the jobs that wait for a target due now, some at a time.
-- maintenance/jobs.py queues them. All such jobs, because a job has no target until it is claimed.
WITH waiting AS MATERIALIZED (
    SELECT j.org_id, j.id
    FROM postponed AS p
    CROSS JOIN LATERAL (
        -- Not a join, which may begin with all jobs.
        SELECT j.org_id, j.id
        FROM jobs AS j
        WHERE j.org_id = p.org_id AND j.id = p.id
          AND j.state = 'retrying' AND j.error_code = 'target_unreachable' AND j.run_at > now()
        FOR UPDATE SKIP LOCKED
    ) AS j
    WHERE p.error_code = 'target_unreachable' AND p.endpoint = ANY (:endpoints::text[])
      AND p.run_at > now()
    LIMIT :rows_max::integer
),
moved AS (
    UPDATE jobs AS j
    SET run_at = now(), updated_at = now()
    FROM waiting AS w
    WHERE j.org_id = w.org_id AND j.id = w.id
    RETURNING j.org_id, j.id, j.run_at, j.state, j.lane, j.task_index, j.run_id, j.endpoint,
              j.error_code
),
/* include coatcheck.core:postponed/add_moved */
SELECT m.id FROM moved AS m

-- name: target_loads
-- The targets of a claim: their turns, whether they can be reached, and the models whose jobs they
-- hold. A permit in use is a held job, which is counted here and stored nowhere. Times are seconds
-- since 1970. `limited`: whether any concurrency limit is set; most deployments have none.
--
-- $1 names   $2 endpoints
WITH held AS MATERIALIZED (
    SELECT a.target, h.flow AS model, count(*) AS jobs
    FROM held_jobs AS h
    JOIN llm_assignments AS a ON a.org_id = h.org_id AND a.job_id = h.id AND a.lease = h.lease
    WHERE h.boot >= 0 AND h.endpoint = ANY ($2::text[])
    GROUP BY a.target, h.flow
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
