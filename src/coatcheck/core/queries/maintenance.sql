-- name: clock
-- The time. A machine whose clock is fast would otherwise take new blobs for old ones.
SELECT clock_timestamp()

-- name: expire_waiting
-- Fail jobs that did not start before their deadline: staged, queued, retrying -> failed.
--
-- Takes due rows of start_deadlines, which say where to look; the job decides. Rows of jobs that have
-- ended are deleted, and so are those of the jobs that it fails. A job that runs is looked at again in
-- some seconds: if it comes back to wait for a retry, it has still missed its deadline. One that somebody
-- has locked keeps its row, and is looked at next time.
--
-- The jobs are found again by ctid: this very statement has locked them. One that was queued since this
-- statement began is locked in a version that the statement does not see, and is not found: it keeps its
-- row, and fails next time.
--
-- Returns how many rows were deleted or moved on, with each job that failed, or one row without a job.
WITH due AS MATERIALIZED (
    SELECT d.org_id, d.id
    FROM start_deadlines AS d
    WHERE d.due_at <= now()
    ORDER BY d.due_at
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
),
next AS MATERIALIZED (
    SELECT j.ctid AS tid, j.org_id, j.id, octet_length(j.payload) AS payload_bytes,
           'failed'::job_state AS state, :keep_seconds::integer AS keep_seconds
    FROM due AS d
    JOIN jobs AS j ON j.org_id = d.org_id AND j.id = d.id
    WHERE j.state IN ('staged', 'queued', 'retrying') AND j.start_deadline <= now()
    FOR UPDATE OF j SKIP LOCKED
),
changed AS (
    UPDATE jobs AS j
    SET /* include jobs/set_end */,
        error_code = 'start_deadline_passed', error_message = 'did not start before its deadline'
    FROM next
    WHERE j.ctid = next.tid
    RETURNING j.org_id, j.id, j.lane, j.request_id, j.state, j.endpoint, j.flow,
              j.failures + j.crashes AS attempts, next.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, j.expires_at, j.owner, j.task_index, old.state AS previous, j.run_at
),
moved AS (
    SELECT c.* FROM changed AS c
),
attempts AS (
    /* include jobs/no_attempts */
),
/* include queue/leave */,
/* include postponed/leave */,
others AS MATERIALIZED (
    SELECT d.org_id, d.id, j.state, j.start_deadline
    FROM due AS d
    LEFT JOIN jobs AS j ON j.org_id = d.org_id AND j.id = d.id
    WHERE (d.org_id, d.id) NOT IN (SELECT n.org_id, n.id FROM next AS n)
),
looked_at AS (
    DELETE FROM start_deadlines AS d USING (
        SELECT c.org_id, c.id FROM changed AS c
        UNION ALL
        SELECT o.org_id, o.id
        FROM others AS o
        WHERE o.start_deadline IS NULL OR o.state IN ('completed', 'failed', 'cancelled')
    ) AS over
    WHERE d.org_id = over.org_id AND d.id = over.id
    RETURNING d.id
),
to_look_at AS (
    UPDATE start_deadlines AS d
    SET due_at = CASE
        WHEN c.start_deadline <= now() THEN now() + interval '5 seconds'
        ELSE /* include start_deadlines/look_at */
    END
    FROM others AS c
    WHERE d.org_id = c.org_id AND d.id = c.id
      AND (
          c.state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested')
          OR c.state IN ('staged', 'queued', 'retrying') AND c.start_deadline > now()
      )
    RETURNING d.id
),
/* include jobs/ended */
SELECT done.rows, c.id, c.endpoint, c.state::text AS state, c.org_id, c.lane::text AS lane,
       c.error_code, c.request_id, c.attempts
FROM (
    SELECT (SELECT count(*) FROM looked_at) + (SELECT count(*) FROM to_look_at) AS rows
) AS done
LEFT JOIN changed AS c ON true

-- name: fail_overrun
-- End attempts that a live worker still holds well past their run deadline: it should have stopped
-- them itself, so it has lost track of them.
--
-- Live: seen since the slack was over, and within its lease time. If a worker fell silent before that,
-- it is unknown whether it still ran the job at the deadline: the rescuer takes the job, and counts a
-- crash. Only one of the two statements ever applies to a job, except at the moment when its worker's
-- silence becomes too long: then the row lock and the lease decide.
--
-- retry: running -> retrying while attempts last, else failed; cancel_requested -> cancelled.
--
-- Jobs that a remote runs (boot 0) are the poller's, which also cancels the work.
--
-- :slack_seconds  slack in seconds   :keep_seconds  seconds to keep by default
WITH next AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, octet_length(j.payload) AS payload_bytes,
           CASE
               WHEN j.state = 'cancel_requested' THEN 'cancelled'
               WHEN j.failures < j.failures_max THEN 'retrying'
               ELSE 'failed'
           END::job_state AS state,
           :keep_seconds::integer AS keep_seconds
    FROM claimed_jobs AS k
    CROSS JOIN LATERAL (
        SELECT j.*
        FROM jobs AS j
        WHERE j.org_id = k.org_id AND j.id = k.id AND j.lease = k.lease
          AND j.run_deadline < now() - :slack_seconds::double precision * interval '1 second'
          AND EXISTS (
              SELECT FROM workers AS w
              WHERE w.boot = j.lease >> 40
                AND w.died_at IS NULL
                AND w.last_seen_at > j.run_deadline + :slack_seconds::double precision * interval '1 second'
                AND w.last_seen_at > now() - interval '1 second' * CASE j.lane
                    WHEN 'urgent' THEN w.urgent_seconds
                    WHEN 'standard' THEN w.standard_seconds
                    WHEN 'bulk' THEN w.bulk_seconds
                END
          )
        FOR UPDATE OF j SKIP LOCKED
    ) AS j
    WHERE k.boot > 0
    LIMIT :rows_max::integer
),
changed AS (
    UPDATE jobs AS j
    SET /* include jobs/set_end */,
        run_at = now(), failures = j.failures + 1,
        run_seconds = j.run_seconds + extract(
            epoch FROM now() - coalesce(j.started_at, j.dispatched_at, now())
        ),
        error_code = CASE
            WHEN next.state = 'cancelled' THEN 'cancelled'
            WHEN next.state = 'failed' AND j.run_id IS NULL THEN 'max_retries_exhausted'
            ELSE 'timed_out'
        END,
        error_message = CASE next.state
            WHEN 'cancelled' THEN 'cancelled while it ran'
            WHEN 'failed' THEN format(
                'failed %s; last: timed_out: ran long past its deadline',
                CASE j.failures WHEN 0 THEN 'once' ELSE (j.failures + 1) || ' times' END
            )
            ELSE 'ran long past its deadline'
        END,
        started_at = CASE WHEN next.state = 'retrying' THEN NULL ELSE j.started_at END
    FROM next
    WHERE j.org_id = next.org_id AND j.id = next.id AND j.lease = next.lease
    RETURNING j.org_id, j.id, j.lane, j.request_id, j.state, j.endpoint, j.flow,
              j.failures + j.crashes AS attempts, next.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, j.expires_at, j.owner, j.task_index, old.state AS previous,
              'failed' AS outcome, 'timed_out' AS attempt_code,
              'ran long past its deadline' AS attempt_message, j.dispatched_at,
              old.started_at AS began_at,
              CASE j.state WHEN 'retrying' THEN j.run_at END AS next_run_at,
              j.failures + j.crashes + j.interruptions + j.unreachables AS efforts, j.run_at
),
moved AS (
    SELECT c.* FROM changed AS c
),
attempts AS (
    SELECT c.* FROM changed AS c
),
/* include postponed/add_moved */,
/* include jobs/ended */
SELECT c.id, c.endpoint, c.state::text AS state, c.org_id, c.lane::text AS lane, c.error_code,
       c.request_id, c.attempts
FROM changed AS c

-- name: next_due
-- Seconds until the next job is due, or NULL.
SELECT extract(epoch FROM min(p.run_at) - clock_timestamp())::double precision
FROM postponed AS p
WHERE p.run_at < 'infinity'

-- name: prune
-- Delete jobs whose retention has ended, a small chunk at a time, with all their rows, and open the
-- records of their artifacts. Products add deletions from their own tables for the jobs in `old`, each
-- in a removed_with_jobs (core/queries/maintenance.py). Returns how many jobs, with a row for each
-- blob of their artifacts, to be deleted next, or one row without a blob.
--
-- Takes due rows of job_expiries, the oldest first, until they have named enough jobs: a row is locked
-- when its first job is needed, so none after the last is. The last row keeps the jobs that were too
-- many. A row also keeps jobs that somebody has locked, or has given another `expires_at` by hand; it is
-- then due when the first of them is, or in a minute, so that they do not hold up others.
--
-- The jobs are found again by ctid: this very statement has locked them.
WITH named AS MATERIALIZED (
    SELECT e.org_id, e.seq, e.size, n.id, n.place
    FROM (
        SELECT e.org_id, e.seq, e.ids, cardinality(e.ids) AS size
        FROM job_expiries AS e
        WHERE e.expires_at <= now()
        ORDER BY e.expires_at
        FOR UPDATE SKIP LOCKED
    ) AS e
    CROSS JOIN LATERAL unnest(e.ids) WITH ORDINALITY AS n (id, place)
    LIMIT :rows_max::integer
),
old AS MATERIALIZED (
    SELECT j.ctid AS tid, j.org_id, j.id, j.state, j.webhook, j.owner, j.endpoint, j.flow
    FROM named AS n
    JOIN jobs AS j ON j.org_id = n.org_id AND j.id = n.id
    WHERE j.expires_at <= now()
    FOR UPDATE OF j SKIP LOCKED
),
jobs_gone AS (
    DELETE FROM jobs AS j USING old AS o WHERE j.ctid = o.tid RETURNING j.id
),
kept AS MATERIALIZED (
    SELECT n.org_id, n.seq, array_agg(n.id ORDER BY n.place) AS ids, min(j.expires_at) AS expires_at
    FROM named AS n
    JOIN jobs AS j ON j.org_id = n.org_id AND j.id = n.id
    WHERE (SELECT count(*) FROM jobs_gone) < (SELECT count(*) FROM named)
      AND j.expires_at < 'infinity' AND n.id <> ALL (ARRAY(SELECT g.id FROM jobs_gone AS g))
    GROUP BY n.org_id, n.seq
),
looked AS MATERIALIZED (
    SELECT n.org_id, n.seq, n.size, n.taken, k.ids, k.expires_at,
           n.taken = n.size AND k.ids IS NULL AS is_done
    FROM (
        SELECT org_id, seq, size, count(*)::integer AS taken FROM named GROUP BY org_id, seq, size
    ) AS n
    LEFT JOIN kept AS k ON k.org_id = n.org_id AND k.seq = n.seq
),
expiries_gone AS (
    DELETE FROM job_expiries AS e USING looked AS l
    WHERE l.is_done AND e.org_id = l.org_id AND e.seq = l.seq
),
expiries_left AS (
    UPDATE job_expiries AS e
    SET ids = l.ids || e.ids[l.taken + 1 :],
        expires_at = CASE
            WHEN l.taken = l.size THEN greatest(l.expires_at, now() + interval '1 minute')
            ELSE e.expires_at
        END
    FROM looked AS l
    WHERE NOT l.is_done AND e.org_id = l.org_id AND e.seq = l.seq
),
unsuccessful_gone AS (
    DELETE FROM unsuccessful_jobs AS u USING old AS o
    WHERE o.state <> 'completed' AND u.org_id = o.org_id AND u.id = o.id
),
events_gone AS (
    DELETE FROM job_events AS e USING old AS o WHERE e.org_id = o.org_id AND e.job_id = o.id
),
webhooks_gone AS (
    DELETE FROM job_webhooks AS w USING old AS o
    WHERE o.webhook > 0 AND w.org_id = o.org_id AND w.job_id = o.id
),
remote_calls_gone AS (
    DELETE FROM remote_calls AS c USING old AS o WHERE c.org_id = o.org_id AND c.job_id = o.id
),
/* removed with jobs */
gone AS (
    DELETE FROM artifacts AS a USING old AS o WHERE a.org_id = o.org_id AND a.job_id = o.id
    RETURNING a.*, o.owner, o.endpoint, o.flow, NULL::timestamptz AS deleted_at,
              'retention' AS mechanism
),
doomed AS (
    /* include artifacts/open_records */
)
SELECT n.jobs, d.org_id, d.job_id, d.seq, d.blob_key
FROM (SELECT count(*) AS jobs FROM jobs_gone) AS n
LEFT JOIN doomed AS d ON true

-- name: prune_workers
-- Delete the rows of workers that have been silent for long and hold nothing.
DELETE FROM workers AS w
WHERE w.last_seen_at < now() - greatest(
        w.urgent_seconds, w.standard_seconds, w.bulk_seconds
    ) * interval '2 seconds'
  AND NOT EXISTS (SELECT FROM held_jobs AS h WHERE h.boot = w.boot OFFSET 0)

-- name: queue_due
-- Queue jobs that are due: staged, retrying -> queued.
--
-- The job decides, as it is once it is locked. Its row is deleted unless it waits for a later time: also
-- one that was left behind, and one whose job has been deleted since.
WITH due AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, j.run_at
    FROM postponed AS p
    JOIN jobs AS j ON j.org_id = p.org_id AND j.id = p.id
    WHERE p.run_at <= now()
    ORDER BY p.run_at
    LIMIT :rows_max::integer
    FOR UPDATE OF j SKIP LOCKED
),
moved AS (
    UPDATE jobs AS j
    SET state = 'queued', updated_at = now()
    FROM due AS d
    WHERE j.org_id = d.org_id AND j.id = d.id AND d.state IN ('staged', 'retrying')
      AND d.run_at <= now()
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              j.run_id, j.webhook, NULL AS error_code, old.state AS previous, j.lane, j.run_at
),
over AS (
    DELETE FROM postponed AS p USING (
        SELECT d.org_id, d.id
        FROM due AS d
        WHERE d.state NOT IN ('staged', 'retrying') OR d.run_at <= now()
        UNION ALL
        SELECT o.org_id, o.id
        FROM (
            SELECT p.org_id, p.id
            FROM postponed AS p
            WHERE p.run_at <= now()
            ORDER BY p.run_at
            LIMIT :rows_max::integer
        ) AS o
        WHERE (o.org_id, o.id) NOT IN (SELECT d.org_id, d.id FROM due AS d)
          AND NOT EXISTS (
              SELECT FROM jobs AS j WHERE j.org_id = o.org_id AND j.id = o.id OFFSET 0
          )
    ) AS over
    WHERE p.org_id = over.org_id AND p.id = over.id
),
/* include queue/add_moved */,
notified AS (
    /* include webhooks/write_deliveries_from_moved */
)
SELECT m.id, m.endpoint FROM moved AS m

-- name: rescue
-- Take jobs from workers that are known to be dead, were silent for longer than their lease time, or
-- have no row.
--
-- crash: running -> queued; crash_again: running -> retrying, after a delay that grows; failed once no
-- crash is left; cancel_requested -> cancelled. The row lock and the lease decide against a finish in
-- flight: exactly one of the two wins. The attempt counts as having run until its worker was last
-- seen.
--
-- A job that crashes alone may be the cause, and is allowed :crashes_max crashes. Of jobs that crash together most
-- are bystanders, and the cause is unknown: they are allowed :crashes_together_max. Each waits for a different time, so
-- that they do not all meet again.
--
-- Jobs that a remote runs (boot 0) are the poller's.
--
-- :crashes_max  crashes allowed   :keep_seconds  seconds to keep by default
-- :crashes_together_max  crashes allowed together
-- :delays  seconds to wait after the second crash, the third, and so on
-- :jitter  the fraction of it for jitter
WITH next AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, octet_length(j.payload) AS payload_bytes,
           coalesce(
               (SELECT w.last_seen_at FROM workers AS w WHERE w.boot = j.lease >> 40), now()
           ) AS last_seen_at,
           CASE
               WHEN EXISTS (
                   SELECT FROM workers AS w WHERE w.boot = j.lease >> 40 AND w.died_at IS NOT NULL
               ) THEN 'its worker died'
               ELSE 'its worker fell silent'
           END AS reason,
           CASE
               WHEN j.state = 'cancel_requested' THEN 'cancelled'
               WHEN j.crashes = 0 THEN 'queued'
               WHEN j.crashes < :crashes_max::integer THEN 'retrying'
               WHEN j.crashes < :crashes_together_max::integer AND EXISTS (
                   SELECT FROM held_jobs AS other
                   WHERE other.boot = ANY (
                       ARRAY(
                           SELECT also.boot
                           FROM workers AS w
                           JOIN workers AS also ON also.process = w.process
                           WHERE w.boot = j.lease >> 40
                       ) || (j.lease >> 40)
                   ) AND (other.org_id, other.id) <> (j.org_id, j.id)
               ) THEN 'retrying'
               ELSE 'failed'
           END::job_state AS state,
           :keep_seconds::integer AS keep_seconds
    FROM claimed_jobs AS k
    CROSS JOIN LATERAL (
        SELECT j.*
        FROM jobs AS j
        WHERE j.org_id = k.org_id AND j.id = k.id AND j.lease = k.lease
          AND NOT EXISTS (
              SELECT FROM workers AS w
              WHERE w.boot = j.lease >> 40
                AND w.died_at IS NULL
                AND w.last_seen_at > now() - interval '1 second' * CASE j.lane
                    WHEN 'urgent' THEN w.urgent_seconds
                    WHEN 'standard' THEN w.standard_seconds
                    WHEN 'bulk' THEN w.bulk_seconds
                END
          )
        FOR UPDATE OF j SKIP LOCKED
    ) AS j
    WHERE k.boot > 0
    LIMIT :rows_max::integer
),
changed AS (
    UPDATE jobs AS j
    SET /* include jobs/set_end */,
        crashes = j.crashes + 1,
        run_at = CASE
            WHEN next.state = 'retrying' THEN now() + interval '1 second'
                * (:delays::double precision[])[least(j.crashes, cardinality(:delays::double precision[]))]
                * (1 + :jitter::double precision * random())
            ELSE j.run_at
        END,
        run_seconds = j.run_seconds + greatest(
            0, extract(epoch FROM next.last_seen_at - coalesce(j.started_at, j.dispatched_at, now()))
        ),
        error_code = CASE next.state WHEN 'cancelled' THEN 'cancelled' ELSE 'worker_lost' END,
        error_message = CASE next.state
            WHEN 'cancelled' THEN 'cancelled while it ran'
            WHEN 'failed' THEN format(
                'lost its worker %s times; last: %s', j.crashes + 1, next.reason
            )
            ELSE next.reason
        END,
        started_at = CASE WHEN next.state IN ('queued', 'retrying') THEN NULL ELSE j.started_at END
    FROM next
    WHERE j.org_id = next.org_id AND j.id = next.id AND j.lease = next.lease
    RETURNING j.org_id, j.id, j.lane, j.request_id, j.state, j.endpoint, j.flow,
              j.failures + j.crashes AS attempts, next.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, j.expires_at, j.owner, j.task_index, old.state AS previous,
              'crashed' AS outcome, 'worker_lost' AS attempt_code,
              next.reason AS attempt_message, j.dispatched_at, old.started_at AS began_at,
              CASE j.state WHEN 'retrying' THEN j.run_at END AS next_run_at,
              j.failures + j.crashes + j.interruptions + j.unreachables AS efforts, j.run_at
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
SELECT c.id, c.endpoint, c.state::text AS state, c.org_id, c.lane::text AS lane, c.error_code,
       c.request_id, c.attempts
FROM changed AS c

-- name: sweep_claims
-- Delete the claims none of whose jobs are held any more, and take out of the others the jobs that are
-- not, once those are most of them: a reader looks every one up. A page of claims, in the order of their
-- key; the next one begins after the last row of this one, which is returned.
--
-- A lease is never given twice, so a job that does not have it will not have it later. Rows are skipped
-- that a worker is deleting. A row that stays is not locked: a lock would be a write.
--
-- :after_org, :after_lease  the last row of the previous page
WITH page AS MATERIALIZED (
    SELECT k.org_id, k.lease, cardinality(k.ids) AS named, array(
               SELECT h.id FROM held_jobs AS h WHERE h.org_id = k.org_id AND h.lease = k.lease
           ) AS held
    FROM claims AS k
    WHERE (k.org_id, k.lease) > (:after_org::text, :after_lease::bigint)
    ORDER BY k.org_id, k.lease
    LIMIT :rows_max::integer
),
stale AS MATERIALIZED (
    SELECT p.org_id, p.lease, p.held
    FROM page AS p
    JOIN claims AS k ON k.org_id = p.org_id AND k.lease = p.lease
    WHERE cardinality(p.held) * 2 < p.named
    FOR UPDATE OF k SKIP LOCKED
),
over AS (
    DELETE FROM claims AS k USING stale AS s
    WHERE k.org_id = s.org_id AND k.lease = s.lease AND cardinality(s.held) = 0
),
shortened AS (
    UPDATE claims AS k
    SET ids = s.held
    FROM stale AS s
    WHERE k.org_id = s.org_id AND k.lease = s.lease AND cardinality(s.held) > 0
)
SELECT p.org_id, p.lease FROM page AS p ORDER BY p.org_id DESC, p.lease DESC LIMIT 1
