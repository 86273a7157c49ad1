-- name: begin
-- Record that work is about to be spawned, before it is: fenced by the lease of the spawning worker.
-- Returns the number of the spawn, and how often it was begun; beyond the first time it may have been
-- made already.
--
-- Repeated under one lease, after a lost answer, it counts once. A row with a remote's id belongs to an
-- earlier spawn, which is over: a job comes back to a worker only once that is known. No row: the lease
-- is lost.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job AND j.lease = :lease
    FOR NO KEY UPDATE
)
INSERT INTO remote_calls AS c (org_id, job_id, begun_by, endpoint, pace_key, destination)
SELECT h.org_id, h.id, :lease, :endpoint, :pace_key, :destination::bytea FROM held AS h
ON CONFLICT (org_id, job_id) DO UPDATE
SET spawn = c.spawn + (c.remote_id IS NOT NULL)::integer,
    tries = CASE
        WHEN c.remote_id IS NOT NULL THEN 1
        WHEN c.begun_by = excluded.begun_by THEN c.tries
        ELSE least(c.tries + 1, 32767)
    END,
    begun_by = excluded.begun_by,
    told_id = CASE WHEN c.remote_id IS NULL THEN c.told_id END,
    pace_key = excluded.pace_key, destination = excluded.destination, begun_at = now(),
    spawned_at = NULL, remote_id = NULL, lease = NULL, due_at = NULL, looker = NULL,
    looked_at = NULL, polls = 0, faults = 0
RETURNING c.spawn, c.tries, c.told_id

-- name: callback_key
-- The id of this database, and the key that signs its callback URLs.
SELECT d.id, d.callback_key FROM deployment AS d

-- name: claim_due
-- Claim calls that are due, in turns: every organisation's first, every organisation's second. An
-- organisation has at most :per_org at a time, including those that the claimant already checks: one whose
-- remote hangs holds up nobody else. A claim lasts :claim_seconds seconds, unless it is renewed.
--
-- The organisations are found by skipping through the index from one to the next, :orgs_max at most; the
-- next claim continues after the last one, which a row without a job returns.
--
-- :per_org  of one organisation   :claim_seconds  seconds   :after  the one to start after
-- :busy_calls  organisations, and how many calls of each are being checked
WITH RECURSIVE seen AS (
    (
        SELECT c.org_id, 1 AS nth
        FROM remote_calls AS c
        WHERE c.due_at IS NOT NULL AND c.org_id > :after::text
        ORDER BY c.org_id
        LIMIT 1
    )
    UNION ALL
    SELECT n.org_id, s.nth + 1
    FROM seen AS s
    CROSS JOIN LATERAL (
        SELECT c.org_id
        FROM remote_calls AS c
        WHERE c.due_at IS NOT NULL AND c.org_id > s.org_id
        ORDER BY c.org_id
        LIMIT 1
    ) AS n
    WHERE s.nth < :orgs_max::integer
),
due AS MATERIALIZED (
    SELECT s.org_id, d.job_id, d.due_at, row_number() OVER (PARTITION BY s.org_id ORDER BY d.due_at) AS turn
    FROM seen AS s
    CROSS JOIN LATERAL (
        SELECT c.job_id, c.due_at
        FROM remote_calls AS c
        WHERE c.org_id = s.org_id AND c.due_at <= now()
        ORDER BY c.due_at
        LIMIT greatest(0, :per_org::integer - coalesce(
            (
                SELECT u.calls
                FROM unnest(:busy_orgs::text[], :busy_calls::integer[]) AS u (org_id, calls)
                WHERE u.org_id = s.org_id
            ),
            0
        ))
    ) AS d
),
chosen AS MATERIALIZED (
    SELECT d.org_id, d.job_id FROM due AS d ORDER BY d.turn, d.due_at LIMIT :rows_max::integer
),
locked AS MATERIALIZED (
    SELECT c.org_id, c.job_id
    FROM chosen AS n
    JOIN remote_calls AS c ON c.org_id = n.org_id AND c.job_id = n.job_id
    WHERE c.due_at <= now()
    FOR UPDATE OF c SKIP LOCKED
),
taken AS (
    UPDATE remote_calls AS c
    SET looker = :claimant::uuid, due_at = now() + :claim_seconds::double precision * interval '1 second',
        polls = c.polls + 1
    FROM locked AS l
    WHERE c.org_id = l.org_id AND c.job_id = l.job_id
    RETURNING c.*
),
looked AS (
    /* include remote_calls/claimed_columns */
)
SELECT * FROM looked
UNION ALL
SELECT s.org_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL
FROM seen AS s
WHERE s.nth = :orgs_max::integer

-- name: claim_one
-- Claim the call of one job, unless another process checks it, or has within the last moment. After an
-- invalid answer, the time until the next check binds everybody: a caller who asks five times a second
-- must not use up a remote's faults, nor ignore its Retry-After. With a moment of 0 neither applies:
-- for a cancellation, and for a callback.
--
-- A claimant has a name of its own for each claim. Repeated after a lost answer, the claim that it has
-- already is its answer, and counts as one poll.
--
-- :claim_seconds  seconds that the claim lasts   :moment_seconds  seconds of that moment
WITH locked AS MATERIALIZED (
    SELECT c.org_id, c.job_id, (c.looker IS DISTINCT FROM :claimant::uuid)::integer AS polls
    FROM remote_calls AS c
    WHERE c.org_id = :org AND c.job_id = :job AND c.lease IS NOT NULL
      AND (
          c.looker = :claimant::uuid
          OR (c.looker IS NULL OR c.due_at <= now())
          AND coalesce(c.looked_at, c.spawned_at)
              <= now() - :moment_seconds::double precision * interval '1 second'
          AND (:moment_seconds::double precision = 0 OR c.faults = 0 OR c.due_at <= now())
      )
    FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE remote_calls AS c
    SET looker = :claimant::uuid, due_at = now() + :claim_seconds::double precision * interval '1 second',
        polls = c.polls + l.polls
    FROM locked AS l
    WHERE c.org_id = l.org_id AND c.job_id = l.job_id
    RETURNING c.*
)
/* include remote_calls/claimed_columns */

-- name: claimed_columns
-- The columns of a claimed call, named as the fields of ClaimedCall: included by claim_due and claim_one,
-- from their `taken`, which has the call's columns. A call whose job has another lease is over; of a job
-- that was deleted only the call's own columns mean anything.
SELECT t.org_id AS org, t.job_id AS uuid, coalesce(j.lane::text, 'standard') AS lane, t.endpoint,
       coalesce(j.flow, '') AS queue_key, coalesce(j.failures + j.crashes + 1, 1) AS attempt,
       coalesce(j.failures, 0) AS failures, coalesce(j.unreachables, 0) AS unreachables, j.request_id,
       t.lease, t.destination, t.remote_id, t.polls, t.faults, j.state::text AS state,
       j.lease IS NOT DISTINCT FROM t.lease AS is_held,
       coalesce(j.run_deadline <= now(), false) AS is_overdue, coalesce(j.owner, '') AS owner,
       extract(epoch FROM now() - t.spawned_at)::double precision AS spawned_seconds,
       extract(epoch FROM now() - coalesce(j.started_at, t.spawned_at))::double precision
           AS ran_seconds,
       p.usual_seconds, p.spread_seconds
FROM taken AS t
LEFT JOIN jobs AS j ON j.org_id = t.org_id AND j.id = t.job_id
LEFT JOIN remote_paces AS p ON p.org_id = t.org_id AND p.pace_key = t.pace_key

-- name: complete
-- finalizing -> completed, with its file, fenced by the lease of the process that stored it. A job that
-- is being cancelled does not complete: its result is discarded. No row: the caller finds out why, and
-- deletes what it stored.
--
-- The duration updates the estimate for the next polls.
--
-- :keep_seconds  seconds to keep by default
WITH next AS MATERIALIZED (
    SELECT j.org_id, j.id, octet_length(j.payload) AS payload_bytes, 'completed'::job_state AS state,
           :keep_seconds::integer AS keep_seconds
    FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job AND j.lease = :lease AND j.state = 'finalizing'
    FOR UPDATE
),
changed AS (
    UPDATE jobs AS j
    SET /* include jobs/set_end */,
        result = :result::bytea, error_code = NULL, error_message = NULL,
        run_seconds = j.run_seconds + extract(epoch FROM now() - coalesce(j.started_at, now()))
    FROM next
    WHERE j.org_id = next.org_id AND j.id = next.id
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              next.payload_bytes, octet_length(j.result) AS result_bytes, j.run_seconds,
              j.run_id, j.webhook, NULL AS error_code, NULL AS error_message,
              j.expires_at, j.owner, j.task_index, old.state AS previous
),
filed AS (
    INSERT INTO artifacts (org_id, job_id, name, blob_key, media_type, bytes, sha256)
    SELECT c.org_id, c.id, :name::text, :blob_key::text, :media_type::text, :size::bigint, :sha256::bytea
    FROM changed AS c
    WHERE :name::text IS NOT NULL
    ON CONFLICT (org_id, job_id, name) DO UPDATE
    SET blob_key = excluded.blob_key, media_type = excluded.media_type, bytes = excluded.bytes,
        sha256 = excluded.sha256, created_at = now()
),
done AS (
    DELETE FROM remote_calls AS r USING changed AS c
    WHERE r.org_id = c.org_id AND r.job_id = c.id
    RETURNING r.org_id, r.pace_key,
              extract(epoch FROM coalesce(r.looked_at, now()) - r.spawned_at) AS seconds
),
learnt AS (
    INSERT INTO remote_paces AS p (org_id, pace_key, usual_seconds, spread_seconds)
    SELECT d.org_id, d.pace_key, greatest(0, d.seconds), greatest(0, d.seconds) / 2 FROM done AS d
    ON CONFLICT (org_id, pace_key) DO UPDATE
    SET usual_seconds = p.usual_seconds
            + (excluded.usual_seconds - p.usual_seconds) / least(p.samples + 1, 8),
        spread_seconds = p.spread_seconds
            + (abs(excluded.usual_seconds - p.usual_seconds) - p.spread_seconds)
            / least(p.samples + 1, 8),
        samples = least(p.samples + 1, 1000000), updated_at = now()
),
over AS (
    -- A lease of boot 0 is that of one job.
    DELETE FROM claims AS k USING changed AS c WHERE k.org_id = c.org_id AND k.lease = :lease
),
moved AS (
    SELECT c.* FROM changed AS c
),
attempts AS (
    /* include jobs/no_attempts */
),
/* include jobs/ended */
SELECT c.id FROM changed AS c

-- name: delete_ended
-- Delete a call that nobody checks and whose job has ended.
DELETE FROM remote_calls AS c
WHERE c.org_id = :org AND c.job_id = :job AND c.lease IS NULL
  AND NOT EXISTS (
      SELECT FROM jobs AS j
      WHERE j.org_id = c.org_id AND j.id = c.job_id
        AND j.state NOT IN ('completed', 'failed', 'cancelled')
  )

-- name: drop
-- Delete a call whose job has ended, fenced by its lease. If another worker is to spawn the work anew,
-- the row stays and keeps the number of the spawn.
WITH ended AS MATERIALIZED (
    SELECT c.org_id, c.job_id,
           NOT EXISTS (
               SELECT FROM jobs AS j
               WHERE j.org_id = c.org_id AND j.id = c.job_id
                 AND j.state NOT IN ('completed', 'failed', 'cancelled')
           ) AS is_over
    FROM remote_calls AS c
    WHERE c.org_id = :org AND c.job_id = :job AND c.lease = :lease
    FOR UPDATE
),
over AS (
    -- A lease of boot 0 is that of one job.
    DELETE FROM claims AS k
    WHERE k.org_id = :org AND k.lease = :lease
      AND NOT EXISTS (
          SELECT FROM jobs AS j WHERE j.org_id = :org AND j.id = :job AND j.lease = :lease
      )
),
idle AS (
    UPDATE remote_calls AS c
    SET lease = NULL, due_at = NULL, looker = NULL
    FROM ended AS e
    WHERE c.org_id = e.org_id AND c.job_id = e.job_id AND NOT e.is_over
)
DELETE FROM remote_calls AS c USING ended AS e
WHERE c.org_id = e.org_id AND c.job_id = e.job_id AND e.is_over

-- name: finalize
-- Win the right to store a remote's result: processing -> finalizing, or take over from a process that
-- fell silent there, with a new lease. Of all that saw the same lease, one wins; a job that is being
-- cancelled cannot be finalized. Returns the new lease.
--
-- Repeated after a lost answer, the winner is known by its claim of the call, and has the lease that it
-- won. Both rows are locked: a repeat that waits for the first try sees what that wrote.
--
-- :hold_seconds  seconds that it is held for
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id,
           CASE j.lease WHEN :lease::bigint THEN nextval('parked_leases') ELSE j.lease END AS fresh
    FROM jobs AS j
    JOIN remote_calls AS c ON c.org_id = j.org_id AND c.job_id = j.id
    WHERE j.org_id = :org AND j.id = :job
      AND (
          j.lease = :lease::bigint AND j.state IN ('processing', 'finalizing')
          OR j.lease = c.lease AND c.looker = :claimant::uuid AND j.state = 'finalizing'
      )
    FOR UPDATE
),
changed AS (
    UPDATE jobs AS j
    SET state = 'finalizing', lease = h.fresh, updated_at = now()
    FROM held AS h
    WHERE j.org_id = h.org_id AND j.id = h.id
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              j.run_id, j.webhook, NULL AS error_code, old.state AS previous, j.lease,
              old.lease AS previous_lease
),
claimed AS (
    SELECT c.org_id, c.id, c.lease FROM changed AS c WHERE c.lease <> c.previous_lease
),
written AS (
    /* include claims/write_claims */
),
over AS (
    -- A lease of boot 0 is that of one job.
    DELETE FROM claims AS k USING changed AS c
    WHERE k.org_id = c.org_id AND k.lease = c.previous_lease AND c.lease <> c.previous_lease
),
mine AS (
    UPDATE remote_calls AS c
    SET lease = n.lease, looker = :claimant::uuid,
        due_at = now() + :hold_seconds::double precision * interval '1 second'
    FROM changed AS n
    WHERE c.org_id = n.org_id AND c.job_id = n.id
),
moved AS (
    SELECT c.* FROM changed AS c WHERE c.previous <> 'finalizing'
),
notified AS (
    /* include webhooks/write_deliveries_from_moved */
)
SELECT c.lease FROM changed AS c

-- name: find_orphan
-- One orphaned job, by its key. :org org
SELECT /* include remote_calls/orphan_columns */
FROM jobs AS j
WHERE j.org_id = :org AND j.id = :job AND j.lease >> 40 = 0
  AND /* include remote_calls/is_orphan */

-- name: idle
-- Calls that nobody checks, and whose job has ended some other way or was deleted: their leftovers are
-- deleted, and then they are. They may hold secrets.
SELECT c.org_id, c.job_id, c.endpoint, c.destination, coalesce(j.owner, '') AS owner,
       coalesce(j.state = 'completed', false) AS is_completed
FROM remote_calls AS c
LEFT JOIN jobs AS j ON j.org_id = c.org_id AND j.id = c.job_id
WHERE c.lease IS NULL AND (j.state IS NULL OR j.state IN ('completed', 'failed', 'cancelled'))
ORDER BY c.org_id, c.job_id
LIMIT :rows_max::integer

-- name: is_open
-- Whether the job still waits for a spawn.
SELECT EXISTS (
    SELECT FROM remote_calls AS c
    WHERE c.org_id = :org AND c.job_id = :job AND c.spawn = :spawn AND c.lease IS NOT NULL
) AS is_open

-- name: is_orphan
-- Whether a parked job `j` has no call: no row has the remote's id of the work. Nothing leads on from
-- there, so this takes damage from outside; such jobs are failed. Included by list_orphans and
-- find_orphan.
NOT EXISTS (
      SELECT FROM remote_calls AS c
      WHERE c.org_id = j.org_id AND c.job_id = j.id AND c.lease = j.lease
  )

-- name: list_orphans
-- Orphaned jobs. :rows_max rows at most
SELECT /* include remote_calls/orphan_columns */
FROM claimed_jobs AS k
CROSS JOIN LATERAL (
    SELECT *
    FROM jobs AS j
    WHERE j.org_id = k.org_id AND j.id = k.id AND j.lease = k.lease
    OFFSET 0
) AS j
WHERE k.boot = 0 AND /* include remote_calls/is_orphan */
LIMIT :rows_max::integer

-- name: next_due
-- Seconds until the next call is due, or NULL: the earliest of each organisation's.
WITH RECURSIVE seen AS (
    (
        SELECT c.org_id, c.due_at, 1 AS nth
        FROM remote_calls AS c
        WHERE c.due_at IS NOT NULL
        ORDER BY c.org_id, c.due_at
        LIMIT 1
    )
    UNION ALL
    SELECT n.org_id, n.due_at, s.nth + 1
    FROM seen AS s
    CROSS JOIN LATERAL (
        SELECT c.org_id, c.due_at
        FROM remote_calls AS c
        WHERE c.due_at IS NOT NULL AND c.org_id > s.org_id
        ORDER BY c.org_id, c.due_at
        LIMIT 1
    ) AS n
    WHERE s.nth < 1000
)
SELECT extract(epoch FROM min(s.due_at) - clock_timestamp())::double precision AS seconds
FROM seen AS s

-- name: not_spawned
-- Undo begin: the remote certainly did not accept the work, this time. Fenced by the lease that
-- began it, so repeated it counts once; earlier tries, which may have been accepted, stay.
UPDATE remote_calls AS c
SET tries = c.tries - 1, begun_by = 0
WHERE c.org_id = :org AND c.job_id = :job AND c.begun_by = :lease AND c.remote_id IS NULL
RETURNING c.job_id

-- name: note_callback_id
-- Record the id that a callback gives the work, while it is unknown.
UPDATE remote_calls AS c
SET told_id = :remote_id
WHERE c.org_id = :org AND c.job_id = :job AND c.spawn = :spawn AND c.remote_id IS NULL
RETURNING c.job_id

-- name: orphan_columns
-- The columns of an orphaned job `j`: included by list_orphans and find_orphan.
j.org_id AS org, j.id AS uuid, j.lane::text AS lane, j.endpoint, j.flow AS queue_key,
       j.failures + j.crashes + 1 AS attempt, j.failures, j.unreachables, j.request_id, j.lease

-- name: park
-- Park a job whose work a remote does: dispatching -> processing, under a lease of boot 0 that no worker
-- has. If it is being cancelled, its check is due at once. No row: the lease is lost, and the next
-- holder finds the same work by its token.
--
-- :remote_id  the remote's id   :check_seconds  seconds until the first check
-- :run_seconds  seconds that the work may take, or NULL: as set by the claim
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, nextval('parked_leases') AS parked
    FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job AND j.lease = :lease
    FOR UPDATE
),
parked AS (
    UPDATE jobs AS j
    SET state = CASE h.state WHEN 'dispatching' THEN 'processing' ELSE h.state END,
        lease = h.parked, execution_id = :remote_id, updated_at = now(),
        started_at = coalesce(j.started_at, now()),
        run_deadline = coalesce(now() + :run_seconds::double precision * interval '1 second', j.run_deadline)
    FROM held AS h
    WHERE j.org_id = h.org_id AND j.id = h.id
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              j.run_id, j.webhook, NULL AS error_code, old.state AS previous, j.lease
),
claimed AS (
    SELECT p.org_id, p.id, p.lease FROM parked AS p
),
written AS (
    /* include claims/write_claims */
),
waiting AS (
    UPDATE remote_calls AS c
    SET remote_id = :remote_id, spawned_at = now(), lease = p.lease, looker = NULL,
        due_at = now() + CASE p.state
            WHEN 'cancel_requested' THEN 0 ELSE :check_seconds::double precision
        END * interval '1 second'
    FROM parked AS p
    WHERE c.org_id = p.org_id AND c.job_id = p.id
),
moved AS (
    SELECT p.* FROM parked AS p WHERE p.state <> p.previous
),
notified AS (
    /* include webhooks/write_deliveries_from_moved */
)
SELECT p.state::text AS state FROM parked AS p

-- name: prune_durations
-- Delete durations of work that nobody has submitted for a month.
DELETE FROM remote_paces AS p WHERE p.updated_at < now() - interval '30 days'

-- name: renew
-- Extend the claim of a call. No row: another process has it by now.
--
-- :claim_seconds  seconds
UPDATE remote_calls AS c
SET due_at = now() + :claim_seconds::double precision * interval '1 second'
WHERE c.org_id = :org AND c.job_id = :job AND c.looker = :claimant AND c.lease = :lease
RETURNING c.job_id

-- name: reschedule
-- Check calls again later, if the claimant still has them. At their deadline at the latest. Locked in
-- the order of their keys, like the statement that cancels a run's tasks, which may meet it.
WITH mine AS MATERIALIZED (
    SELECT c.org_id, c.job_id, s.seconds, s.faults,
           (
               SELECT j.run_deadline
               FROM jobs AS j
               WHERE j.org_id = c.org_id AND j.id = c.job_id AND j.run_deadline > now()
           ) AS run_deadline
    FROM unnest(:orgs::text[], :jobs::uuid[], :claimants::uuid[], :check_seconds::double precision[], :faults::smallint[])
        AS s (org_id, job_id, looker, seconds, faults)
    JOIN remote_calls AS c ON c.org_id = s.org_id AND c.job_id = s.job_id AND c.looker = s.looker
    WHERE c.lease IS NOT NULL
    ORDER BY c.org_id, c.job_id
    FOR UPDATE OF c
)
UPDATE remote_calls AS c
SET looker = NULL, looked_at = now(), faults = m.faults,
    due_at = least(now() + m.seconds * interval '1 second', m.run_deadline)
FROM mine AS m
WHERE c.org_id = m.org_id AND c.job_id = m.job_id
RETURNING c.job_id
