-- name: submit
-- Create jobs: one statement for every caller that arrived while the last one was in flight.
--
-- -> queued, or staged when due later. Returns the ids that it created; the caller looks up the others
-- (find_existing).
--
-- One array per column; :options has those that few jobs have, as JSON, or NULL.
WITH /* include jobs/created */
SELECT c.id, c.is_staged AS staged FROM created AS c

-- name: created
-- Create jobs, and queue or postpone them: common table expressions that give `created`. Included by the statements
-- that submit jobs.
created AS (
    /* include jobs/insert */
),
queued AS (
    SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.run_at
    FROM created AS c
    WHERE NOT c.is_staged
),
added AS (
    /* include queue/add */
),
put_off AS (
    SELECT c.org_id, c.id, c.run_at, 'staged'::job_state AS state, c.lane, NULL::integer AS task_index,
           NULL::uuid AS run_id, c.endpoint, NULL AS error_code
    FROM created AS c
    WHERE c.is_staged
),
put_off_now AS (
    /* include postponed/add */
),
/* include start_deadlines/add */

-- name: insert
-- Insert the rows of new jobs. ON CONFLICT covers both the idempotency key and the id: a statement whose
-- commit was lost with its connection is simply sent again.
INSERT INTO jobs (
    org_id, id, lane, endpoint, flow, failures_max, payload, owner, idempotency_key,
    fingerprint, request_id, run_at, state, start_deadline, timeout_seconds, keep_completed_seconds,
    keep_failed_seconds, webhook, keeps_input, traceparent
)
SELECT s.org_id, s.id, /* include jobs/lane_of */,
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
    :orgs::text[], :ids::uuid[], :lanes::text[], :endpoints::text[], :flows::text[], :failures_max::smallint[], :payloads::bytea[],
    :owners::text[], :idempotency_keys::text[], :fingerprints::bytea[], :request_ids::text[], :options::jsonb[]
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
RETURNING org_id, id, lane, endpoint, flow, run_at, state = 'staged' AS is_staged, start_deadline

-- name: lane_of
-- The lane that `s` names: spelt out because casting text to an enum reads the catalogue for every row.
CASE s.lane
           WHEN 'urgent' THEN 'urgent'::job_lane
           WHEN 'standard' THEN 'standard'::job_lane
           WHEN 'bulk' THEN 'bulk'::job_lane
       END

-- name: submit_and_notify
-- submit with its notification in the same transaction: see submit_plain_and_notify.
WITH /* include jobs/created */
SELECT c.id, c.is_staged AS staged, notified.ok
FROM created AS c
CROSS JOIN (SELECT pg_notify(:channel::text, :notification::text) IS NULL AS ok) AS notified

-- name: submit_plain
-- Create jobs that can meet no conflict: no key, no option. -> queued
--
-- As submit, without its ON CONFLICT, which costs a fifth of it. Only our own id could exist
-- already, from a statement whose answer was lost: then submit is sent instead.
WITH /* include jobs/queued_plain */
/* include jobs/insert_plain */

-- name: queued_plain
-- Queue the jobs of insert_plain: common table expressions.
queued AS MATERIALIZED (
    SELECT s.org_id, s.id, /* include jobs/lane_of */ AS lane, s.endpoint, s.flow, now() AS run_at
    FROM unnest(:orgs::text[], :ids::uuid[], :lanes::text[], :endpoints::text[], :flows::text[])
        AS s (org_id, id, lane, endpoint, flow)
),
added AS (
    /* include queue/add */
)

-- name: insert_plain
-- Insert the rows of plain jobs.
INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id)
SELECT s.org_id, s.id, /* include jobs/lane_of */,
       s.endpoint, s.flow, s.failures_max, s.payload, coalesce(s.owner, ''),
       s.request_id
FROM unnest(
    :orgs::text[], :ids::uuid[], :lanes::text[], :endpoints::text[], :flows::text[], :failures_max::smallint[], :payloads::bytea[],
    :owners::text[], :request_ids::text[]
) AS s (org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id)

-- name: submit_plain_and_notify
-- submit_plain with its notification in the same transaction: for a few jobs at a quiet time, when
-- another round trip would show and nobody else wants the lock that NOTIFY takes.
WITH created AS (
    /* include jobs/insert_plain */
),
/* include jobs/queued_plain */
SELECT pg_notify(:channel::text, :notification::text)

-- name: submit_one_and_notify
-- submit_plain_and_notify for one job: without the arrays and the grouping that several take
-- (docs/adr/0062).
WITH created AS (
    INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id)
    VALUES (
        :org, :job, /* include jobs/given_lane */, :endpoint, :flow, :failures_max, :payload, :owner,
        :request_id
    )
),
queued AS (
    INSERT INTO queue (org_id, id, lane, endpoint, flow, run_at, ids)
    VALUES (
        :org, :job, /* include jobs/given_lane */, :endpoint, :flow, now(), ARRAY[:job::uuid]
    )
)
SELECT pg_notify(:channel::text, :notification::text)

-- name: given_lane
-- The lane :lane, as lane_of.
CASE :lane::text
           WHEN 'urgent' THEN 'urgent'::job_lane
           WHEN 'standard' THEN 'standard'::job_lane
           WHEN 'bulk' THEN 'bulk'::job_lane
       END

-- name: find_existing
-- The jobs that prevented submissions from being created: they have the same id (our own statement,
-- sent twice) or the same idempotency key.
SELECT s.position, j.id, j.state::text AS state, j.fingerprint
FROM unnest(:orgs::text[], :ids::uuid[], :idempotency_keys::text[]) WITH ORDINALITY
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

-- name: find
-- The job that holds an idempotency key: the answer to a repeated POST before its body is read.
SELECT /* include jobs/view_columns */, j.result
FROM jobs AS j
WHERE j.org_id = :org AND j.idempotency_key = :idempotency_key

-- name: get
-- Jobs by id, for every reader that arrived while the last read was in flight. Long results are left
-- out: 500 of them would not fit into memory. result reads one for one job at a time.
--
-- :result_bytes_max  bytes that a result may have
SELECT /* include jobs/view_columns */,
       CASE WHEN octet_length(j.result) <= :result_bytes_max::integer THEN j.result END AS result
FROM unnest(:orgs::text[], :ids::uuid[]) AS wanted (org_id, id)
JOIN jobs AS j ON j.org_id = wanted.org_id AND j.id = wanted.id

-- name: result
-- The whole result of a job that has completed.
SELECT j.result
FROM jobs AS j
WHERE j.org_id = :org AND j.id = :job AND j.result IS NOT NULL

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

-- name: set_progress
-- The latest progress of running jobs, fenced by the lease. No transition.
UPDATE jobs AS j
SET progress = p.fraction, progress_note = coalesce(p.note, j.progress_note), updated_at = now()
FROM unnest(:orgs::text[], :ids::uuid[], :leases::bigint[], :fractions::real[], :notes::text[])
    AS p (org_id, id, lease, fraction, note)
WHERE j.org_id = p.org_id AND j.id = p.id AND j.lease = p.lease

-- name: cancel once
-- Cancel a job. waiting -> cancelled at once; running -> cancel_requested, for its holder to see.
--
-- Returns the state before and after, and the holder; no row if there is no such job. A terminal job,
-- or one that is being cancelled, is returned unchanged.
--
-- If this waited for the statement that queued the job, it cannot see the row of the queue that was written
-- with it: then `may_be_named`, and the caller sends queue/forget.
--
-- A call to a remote becomes due at once.
--
-- The lease is written although it does not change: PostgreSQL checks a row's constraints before it
-- sees that the version it started from, without the claim that this waited for, is not the newest.
--
-- :keep_seconds  seconds to keep by default
--
-- Once: after a lost answer the caller repeats it knowingly, because it may find its own cancellation.
WITH before AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, j.lease, octet_length(j.payload) AS payload_bytes
    FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job
    FOR UPDATE
),
changed AS (
    UPDATE jobs AS j
    SET /* include jobs/set_end */,
        error_code = 'cancelled', error_message = 'cancelled before it started'
    FROM (
        SELECT b.org_id, b.id, b.payload_bytes, 'cancelled'::job_state AS state,
               :keep_seconds::integer AS keep_seconds
        FROM before AS b
        WHERE b.state IN ('staged', 'queued', 'retrying')
    ) AS next
    WHERE j.org_id = next.org_id AND j.id = next.id
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              next.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, j.expires_at, j.owner, j.task_index, old.state AS previous, j.lane, j.run_at
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
attempts AS (
    /* include jobs/no_attempts */
),
/* include queue/leave */,
/* include postponed/leave */,
/* include jobs/ended */
SELECT b.state::text AS before, coalesce(c.state, a.state, b.state)::text AS after, b.lease >> 40 AS boot,
       c.previous = 'queued' AND NOT EXISTS (SELECT FROM left_behind) AS may_be_named
FROM before AS b
LEFT JOIN changed AS c ON c.id = b.id
LEFT JOIN asked AS a ON a.id = b.id

-- name: backlog
-- How many jobs of these endpoints an organisation has queued, counted up to :count_max. Each lane and
-- endpoint is a range of queue_order; the order keeps the planner from the primary key, by which it would
-- read the jobs of other endpoints, too.
SELECT least(coalesce(sum(waiting.jobs), 0), :count_max::integer)::integer
FROM (
    SELECT own.jobs
    FROM unnest(enum_range(NULL::job_lane)) AS l (lane)
    CROSS JOIN unnest(:endpoints::text[]) AS e (endpoint)
    CROSS JOIN LATERAL (
        SELECT cardinality(q.ids) AS jobs
        FROM queue AS q
        WHERE q.lane = l.lane AND q.endpoint = e.endpoint AND q.org_id = :org
        ORDER BY q.flow, q.run_at, q.id
        LIMIT :count_max
    ) AS own
    LIMIT :count_max
) AS waiting

-- name: org_backlog
-- How many jobs an organisation has queued, tasks included, counted up to :count_max. Reads the
-- organisation's part of the queue by its primary key: it costs what it counts, however long the history or
-- other queues are.
SELECT least(coalesce(sum(waiting.jobs), 0), :count_max::integer)::integer
FROM (
    SELECT cardinality(q.ids) AS jobs
    FROM queue AS q
    WHERE q.org_id = :org
    LIMIT :count_max
) AS waiting

-- name: depth
-- How many jobs are queued, postponed and held, by lane and state, and how long the oldest has been due.
-- Reads the rows of these jobs, never the history.
SELECT lane::text AS lane, state::text AS state, sum(jobs)::bigint AS jobs,
       extract(epoch FROM clock_timestamp() - min(run_at))::double precision AS oldest_seconds
FROM (
    SELECT lane, 'queued'::job_state AS state, run_at, cardinality(ids) AS jobs FROM queue
    UNION ALL
    SELECT lane, state, run_at, 1 FROM postponed
    UNION ALL
    SELECT lane, state, run_at, 1 FROM held_jobs WHERE boot >= 0
) AS live
GROUP BY lane, state

-- name: set_end
-- What an UPDATE of `jobs AS j` sets when it takes jobs from their holder or ends them: included in its
-- SET by every statement that ends jobs, or may. `next` gives state, and keep_seconds: how long an ended
-- job is kept by default.
--
-- A completed job's input is deleted, and so is that of another end unless the job keeps it. Tasks keep
-- theirs, and are deleted with their run.
state = next.state, lease = NULL, run_deadline = NULL, updated_at = now(),
        payload = CASE
            WHEN next.state NOT IN ('completed', 'failed', 'cancelled') OR j.run_id IS NOT NULL
                 OR j.keeps_input AND next.state <> 'completed'
            THEN j.payload
        END,
        finished_at = CASE WHEN next.state IN ('completed', 'failed', 'cancelled') THEN now() END,
        expires_at = CASE
            WHEN next.state NOT IN ('completed', 'failed', 'cancelled') THEN NULL
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(
                CASE next.state
                    WHEN 'completed' THEN j.keep_completed_seconds ELSE j.keep_failed_seconds
                END,
                next.keep_seconds
            ) * interval '1 second'
        END

-- name: ended
-- What is written with every end of a job: its usage, when it expires, where lists find it if it was
-- unsuccessful or a task, its webhook deliveries, and events of the attempt that ended with it. Common table expressions included by every statement that
-- ends jobs, or may, so that they commit with the end and none can be forgotten
-- (tests/unit/test_ends_of_jobs.py).
--
-- The statement names three sets of rows, each of which may be a selection of the others:
--
--   changed    the jobs that it may have ended: see usage/meter, jobs/record_expiries,
--              jobs/record_unsuccessful and jobs/record_tasks for the columns
--   moved      all jobs whose state it changed: see webhooks/write_deliveries_from_moved
--   attempts   the attempts that it ended without completing them: see reports/note_attempts;
--              no_attempts where there is none
metered AS (
    /* include usage/meter */
),
expiring AS (
    /* include jobs/record_expiries */
),
unsuccessful AS (
    /* include jobs/record_unsuccessful */
),
tasks AS (
    /* include jobs/record_tasks */
),
notified AS (
    /* include webhooks/write_deliveries_from_moved */
),
noted AS (
    /* include reports/note_attempts */
)

-- name: record_expiries
-- Record when jobs expire that a statement ended, from `changed` of jobs/ended: maintenance/prune finds
-- them by it. A row for each organisation and time, with at most 100 jobs each. For tasks and jobs that
-- have not ended there is none: their time is infinity or NULL.
--
-- `changed` gives org_id, id, expires_at.
INSERT INTO job_expiries (org_id, expires_at, ids)
    SELECT e.org_id, e.expires_at, e.ids[e.first : e.first + 99]
    FROM (
        SELECT c.org_id, c.expires_at, array_agg(c.id) AS ids,
               generate_series(1, count(*)::integer, 100) AS first
        FROM changed AS c
        WHERE c.expires_at < 'infinity'
        GROUP BY c.org_id, c.expires_at
    ) AS e

-- name: record_unsuccessful
-- Record the jobs that failed or were cancelled in a statement, from `changed` of jobs/ended: lists of them
-- find them by it.
--
-- `changed` gives org_id, id, state, run_id, endpoint, flow, owner.
INSERT INTO unsuccessful_jobs (org_id, id, state, service_hash, owner_hash)
    SELECT c.org_id, c.id, c.state,
           hashtextextended(job_service(c.endpoint, c.flow) || c.org_id, 0), hashtext(c.owner)
    FROM changed AS c
    WHERE c.state IN ('failed', 'cancelled') AND c.run_id IS NULL

-- name: record_tasks
-- Record the tasks that ended in a statement, from `changed` of jobs/ended: lists of a run's tasks find them
-- by it.
--
-- `changed` gives org_id, id, state, run_id, task_index.
INSERT INTO ended_tasks (org_id, run_id, state, block, numbers, ids)
    SELECT c.org_id, c.run_id, c.state, c.task_index / 64, array_agg(c.task_index), array_agg(c.id)
    FROM changed AS c
    WHERE c.run_id IS NOT NULL AND c.state IN ('completed', 'failed', 'cancelled')
    GROUP BY c.org_id, c.run_id, c.state, c.task_index / 64

-- name: ended_tasks
-- The numbers and ids of the first tasks of a run that ended in a state, after a number: included by
-- statements that read those tasks in order.
--
-- Reads the blocks in order, until it has 64 tasks more than wanted: of the last block it may have read a
-- part only, but all that is wanted comes before that part.
--
-- :state  state   :after  after this number   :limit  tasks
SELECT e.number, e.id
FROM (
    SELECT b.number, b.id
    FROM (/* include jobs/blocks_of_ended_tasks */) AS b
    WHERE b.number > :after
    LIMIT :limit::integer + 64
) AS e
ORDER BY e.number
LIMIT :limit

-- name: blocks_of_ended_tasks
-- The numbers and ids of a run's tasks that ended in a state, from the block of :after on, in the order of
-- their blocks: included by ended_tasks and by those that select some of the tasks.
SELECT unnest(t.numbers) AS number, unnest(t.ids) AS id
FROM ended_tasks AS t
WHERE t.org_id = :org AND t.run_id = :run::uuid AND t.state = :state::text::job_state
  AND t.block >= (:after::integer + 1) / 64
ORDER BY t.block

-- name: no_attempts
-- The `attempts` of a statement that ends jobs only when they have completed, or have not begun: its
-- plan then has no row to look at.
SELECT NULL::text AS org_id, NULL::uuid AS id, NULL::uuid AS run_id, NULL::job_state AS state,
           NULL::text AS error_code, NULL::text AS error_message, 0 AS attempts,
           NULL::text AS outcome, NULL::text AS attempt_code, NULL::text AS attempt_message,
           NULL::timestamptz AS dispatched_at, NULL::timestamptz AS began_at,
           NULL::timestamptz AS next_run_at, 0 AS efforts
    WHERE false
