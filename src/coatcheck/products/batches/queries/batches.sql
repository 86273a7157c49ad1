-- name: add_part
-- Add a part to a run, and, if the request has them, its tasks. The transaction has locked the run.
--
-- $1 org   $2 batch   $3 run   $4 part   $5 source   $6 its key   $7 pieces   $8 bytes   $9 upload
-- $10 idempotency key   $11 fingerprint   $12 whether this statement writes all tasks of the part
-- $13 lines   $14-$17 tasks: ids, payloads, custom ids, flows   $18 jobs.webhook of the tasks
-- $19 ETag of the source   $20 for a rerun of the whole batch: of runs with numbers below this
WITH run AS (
    UPDATE runs AS r
    SET tasks = r.tasks + cardinality($14::uuid[]), lines = r.lines + $13::bigint,
        bad_lines = r.bad_lines + $13::bigint - cardinality($14::uuid[])
    WHERE r.org_id = $1 AND r.id = $3
    RETURNING r.org_id, r.id, r.tasks - cardinality($14::uuid[]) AS first
),
part AS (
    INSERT INTO batch_parts (
        org_id, id, batch_id, run_id, position, source, source_key, source_pieces, source_bytes,
        upload_id, idempotency_key, fingerprint, state, lines, bad_lines, tasks, source_etag,
        source_before
    )
    SELECT $1, $4, $2, $3, (
               SELECT coalesce(max(p.position), 0) + 1
               FROM batch_parts AS p
               WHERE p.org_id = $1 AND p.run_id = $3
           ), $5::text, $6::text, $7::integer, $8::bigint, $9::uuid, $10::text, $11::bytea,
           CASE WHEN $12::boolean THEN 'done' ELSE 'pending' END, $13, $13 - cardinality($14::uuid[]),
           cardinality($14::uuid[]), $19::text, $20::integer
),
written AS (
    INSERT INTO jobs (
        org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id, run_id,
        task_index, custom_id, webhook
    )
    SELECT $1, t.id, b.lane, b.endpoint, t.flow, b.failures_max, t.payload, b.owner, b.request_id,
           r.id, r.first + t.number - 1, t.custom_id, $18::smallint
    FROM batches AS b
    CROSS JOIN run AS r
    CROSS JOIN unnest($14::uuid[], $15::bytea[], $16::text[], $17::text[]) WITH ORDINALITY
        AS t (id, payload, custom_id, flow, number)
    WHERE b.org_id = $1 AND b.id = $2
)
SELECT r.first FROM run AS r

-- name: cancel
-- Request the cancellation of a run, and close it. Maintenance cancels its waiting tasks in small
-- steps. A repeat changes nothing.
UPDATE runs
SET cancel_requested_at = coalesce(cancel_requested_at, now()),
    closed_at = coalesce(closed_at, now())
WHERE org_id = $1 AND id = $2

-- name: close
-- Close a run, so that it accepts no more tasks. A repeat changes nothing.
UPDATE runs SET closed_at = coalesce(closed_at, now()) WHERE org_id = $1 AND id = $2

-- name: complete
-- Complete the runs whose tasks have all ended: once, with everything that must be true then. The
-- webhook deliveries, to the batch's own target and to the organisation's endpoints, commit with it.
--
-- Only latched runs have a total. The counters are those of the row: the deltas were added before.
--
-- Every change of a batch locks the batch and then its run. To hold a run while waiting for its batch
-- could deadlock. So a run whose batch is being changed right now is left for the next tick.
--
-- $1 runs at most
WITH ended AS MATERIALIZED (
    SELECT r.org_id, r.id AS run_id, r.group_id AS batch_id, r.number, r.total, r.succeeded, r.failed,
           r.cancelled, r.succeeded_told, r.webhook_target,
           CASE WHEN r.cancel_requested_at IS NULL THEN 'completed' ELSE 'cancelled' END AS status
    FROM runs AS r
    JOIN batches AS b ON b.org_id = r.org_id AND b.id = r.group_id
    WHERE r.completed_at IS NULL AND r.latched_at IS NOT NULL
      AND r.succeeded + r.failed + r.cancelled = r.total
    LIMIT $1::integer
    FOR UPDATE OF b, r SKIP LOCKED
),
runs_done AS (
    UPDATE runs AS r
    SET completed_at = now(), succeeded_told = r.succeeded
    FROM ended AS e
    WHERE r.org_id = e.org_id AND r.id = e.run_id
),
batches_done AS (
    UPDATE batches AS b
    SET completed_at = now(), updated_at = now(),
        expires_at = now() + b.keep_seconds * interval '1 second'
    FROM ended AS e
    WHERE b.org_id = e.org_id AND b.id = e.batch_id AND b.current_run = e.run_id
),
notified AS (
    INSERT INTO webhook_deliveries (
        org_id, target_id, subject_kind, subject_id, run_id, event, facts
    )
    SELECT e.org_id, receiver.target, 'batch', e.batch_id, e.run_id, receiver.event,
           CASE receiver.event
               WHEN 'tasks.succeeded'
               THEN jsonb_build_object('succeeded', e.succeeded - e.succeeded_told)
               ELSE jsonb_build_object(
                   'status', e.status, 'run_number', e.number, 'total', e.total,
                   'succeeded', e.succeeded, 'failed', e.failed, 'cancelled', e.cancelled
               )
           END
    FROM ended AS e
    JOIN batches AS b ON b.org_id = e.org_id AND b.id = e.batch_id
    CROSS JOIN LATERAL (
        SELECT e.webhook_target AS target, 'tasks.succeeded' AS event
        WHERE e.webhook_target IS NOT NULL AND e.succeeded > e.succeeded_told
          AND 'tasks.succeeded' = ANY (b.webhook_events)
        UNION ALL
        SELECT e.webhook_target, 'batch.' || e.status
        WHERE e.webhook_target IS NOT NULL AND 'completed' = ANY (b.webhook_events)
        UNION ALL
        SELECT t.id, 'batch.' || e.status
        FROM webhook_targets AS t
        WHERE t.org_id = e.org_id AND t.events IS NOT NULL
          AND 'batch.' || e.status = ANY (t.events)
    ) AS receiver
    -- The end of a run that a rerun has replaced is not the end of the batch.
    WHERE b.deleted_at IS NULL AND b.current_run = e.run_id
),
/* include coatcheck.core:limits/clear_run */
SELECT e.org_id, e.batch_id, e.run_id, e.status FROM ended AS e

-- name: create
-- Create a batch, its first run, its first part if it has one, and the tasks of a small batch. One
-- statement, so that a batch whose key is taken leaves nothing behind.
--
-- A part whose tasks are written here is done. A batch that is not open is closed from the start. If
-- it has nothing left to ingest, it is latched at once: its total is the number of its tasks.
--
-- $1 org   $2 batch   $3 run   $4 owner   $5 service   $6 its endpoint   $7 engine's endpoint
-- $8 usage flow   $9 lane   $10 failures allowed   $11 open   $12, $13 before and after each input
-- $14 concurrency   $15 rate   $16 rate key   $17 rate of each key   $18 webhook target
-- $19 webhook events   $20 metadata   $21 seconds to keep   $22 key   $23 fingerprint   $24 request
-- $25 part   $26 source   $27 its key   $28 pieces   $29 bytes   $30 upload   $31 lines
-- $32-$35 tasks: ids, payloads, custom ids, flows   $36 jobs.webhook of the tasks
-- $37 whether this statement writes all tasks of the part   $38 ETag of the source
-- $39 secrets for the calls of its tasks
WITH created AS (
    INSERT INTO batches (
        org_id, id, current_run, owner, service, service_endpoint, endpoint, lane, failures_max,
        is_open, payload_prefix, payload_suffix, concurrency, rate_per_second, rate_key,
        rate_key_per_second, webhook_events, metadata, keep_seconds, idempotency_key, fingerprint,
        request_id
    )
    VALUES (
        $1, $2, $3, $4, $5, $6, $7, $9::text::job_lane, $10, $11, $12, $13, $14, $15, $16, $17,
        $19::text[], $20, $21, $22, $23, $24
    )
    ON CONFLICT DO NOTHING
    RETURNING org_id, id, lane
),
run AS (
    INSERT INTO runs (
        org_id, id, group_id, number, lane, endpoint, service, service_endpoint, usage_flow,
        webhook_target, secrets_id, tasks, lines, bad_lines, total, closed_at, latched_at
    )
    SELECT c.org_id, $3, c.id, 1, c.lane, $7, $5, $6, $8, $18, $39::uuid, cardinality($32::uuid[]), $31::bigint,
           $31::bigint - cardinality($32),
           CASE WHEN $37::boolean AND NOT $11 THEN cardinality($32) END,
           CASE WHEN NOT $11 THEN now() END,
           CASE WHEN $37 AND NOT $11 THEN now() END
    FROM created AS c
),
part AS (
    INSERT INTO batch_parts (
        org_id, id, batch_id, run_id, position, source, source_key, source_pieces, source_bytes,
        upload_id, state, lines, bad_lines, tasks, source_etag
    )
    SELECT c.org_id, $25, c.id, $3, 1, $26::text, $27::text, $28::integer, $29::bigint, $30::uuid,
           CASE WHEN $37 THEN 'done' ELSE 'pending' END, $31, $31 - cardinality($32),
           cardinality($32), $38::text
    FROM created AS c
    WHERE $25::uuid IS NOT NULL
),
written AS (
    INSERT INTO jobs (
        org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id, run_id,
        task_index, custom_id, webhook
    )
    SELECT c.org_id, t.id, c.lane, $7, t.flow, $10, t.payload, $4, $24, $3, t.number - 1,
           t.custom_id, $36::smallint
    FROM created AS c
    CROSS JOIN unnest($32::uuid[], $33::bytea[], $34::text[], $35::text[]) WITH ORDINALITY
        AS t (id, payload, custom_id, flow, number)
)
SELECT c.id FROM created AS c

-- name: delete
-- Mark a batch as deleted: callers cannot read it any more, and its idempotency key is free.
-- Maintenance removes its data.
WITH deleted AS (
    UPDATE batches
    SET deleted_at = now(), updated_at = now(), idempotency_key = NULL
    WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL
    RETURNING org_id, id
),
hidden AS (
    UPDATE runs AS r
    SET removed_at = now()
    FROM deleted AS d
    WHERE r.org_id = d.org_id AND r.group_id = d.id
)
SELECT d.id FROM deleted AS d

-- name: find_existing
-- The batch that prevented an insert: it has the same id (our own statement, sent twice), or the same
-- idempotency key.
SELECT b.id, b.fingerprint
FROM batches AS b
WHERE b.org_id = $1 AND b.id = $2
UNION ALL
SELECT b.id, b.fingerprint
FROM batches AS b
WHERE b.org_id = $1 AND b.idempotency_key = $3
LIMIT 1

-- name: find_key
-- The batch that holds an idempotency key.
SELECT b.id, b.fingerprint FROM batches AS b WHERE b.org_id = $1 AND b.idempotency_key = $2

-- name: find_part
-- The part of a batch that prevented an insert: it has the same id (our own statement, sent twice), or
-- the same idempotency key.   $1 org   $2 batch   $3 idempotency key   $4 part
SELECT p.id, p.run_id, p.fingerprint
FROM batch_parts AS p
WHERE p.org_id = $1 AND p.id = $4::uuid
UNION ALL
SELECT p.id, p.run_id, p.fingerprint
FROM batch_parts AS p
WHERE p.org_id = $1 AND p.batch_id = $2 AND p.idempotency_key = $3
LIMIT 1

-- name: get
-- A batch: one row for each of its runs, oldest first.
SELECT /* include batches/view_columns */,
       /* include batches/run_columns */
FROM batches AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.group_id = b.id
/* include batches/run_joins */
WHERE b.org_id = $1 AND b.id = $2 AND b.deleted_at IS NULL
ORDER BY r.number

-- name: get_of_run
-- The batch of a run, with the columns and rows of get.
SELECT /* include batches/view_columns */,
       /* include batches/run_columns */
FROM runs AS one
JOIN batches AS b ON b.org_id = one.org_id AND b.id = one.group_id
JOIN runs AS r ON r.org_id = b.org_id AND r.group_id = b.id
/* include batches/run_joins */
WHERE one.org_id = $1 AND one.id = $2 AND b.deleted_at IS NULL
ORDER BY r.number

-- name: has_latest
-- Whether a run has a task that is the latest of its position, ended in one of these states, and has
-- one of these error codes.
--
-- $1 org   $2 batch   $3 run   $4-$6 as in tasks/is_latest   $7 states   $8 error codes, or NULL
SELECT EXISTS (
    SELECT
    FROM jobs AS seen
    LEFT JOIN batch_positions AS own
        ON own.org_id = $1 AND own.run_id = $3 AND own.task_index = seen.task_index
    WHERE seen.org_id = $1 AND seen.run_id = $3 AND seen.run_id IS NOT NULL
      AND seen.state IN ('completed', 'failed', 'cancelled')
      AND seen.state = ANY ($7::text[]::job_state[])
      AND ($8::text[] IS NULL OR seen.error_code = ANY ($8))
      AND /* include tasks/is_latest */
)

-- name: has_selected
-- Whether a run has a task that ended in one of these states, with one of these error codes.
--
-- $1 org   $2 run   $3 states   $4 error codes, or NULL
SELECT EXISTS (
    SELECT
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $2 AND j.run_id IS NOT NULL
      AND j.state IN ('completed', 'failed', 'cancelled')
      AND j.state = ANY ($3::text[]::job_state[])
      AND ($4::text[] IS NULL OR j.error_code = ANY ($4))
)

-- name: list
-- An organisation's batches, newest first, of one owner or of all. Each has its current run and the
-- sum of the earlier ones, without tasks that a later run has repeated.
--
-- Two branches, of which the planner drops one: with an OR, the few batches of one owner would be
-- searched among all batches.
--
-- $1 org   $2 owner, or NULL   $3 older than this id   $4 how many
WITH page AS MATERIALIZED (
    (
        SELECT b.*
        FROM batches AS b
        WHERE b.org_id = $1 AND b.deleted_at IS NULL AND b.id < $3 AND $2::text IS NULL
        ORDER BY b.id DESC
        LIMIT $4
    )
    UNION ALL
    (
        SELECT b.*
        FROM batches AS b
        WHERE b.org_id = $1 AND b.owner = $2 AND b.deleted_at IS NULL AND b.id < $3
        ORDER BY b.id DESC
        LIMIT $4
    )
)
SELECT /* include batches/view_columns */,
       /* include batches/run_columns */,
       earlier.tasks AS earlier_tasks, earlier.running AS earlier_running,
       earlier.succeeded AS earlier_succeeded, earlier.failed AS earlier_failed,
       earlier.cancelled AS earlier_cancelled
FROM page AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.id = b.current_run
/* include batches/run_joins */
CROSS JOIN LATERAL (
    SELECT coalesce(sum(
               r.tasks - r.replaced_succeeded - r.replaced_failed - r.replaced_cancelled
           ), 0)::integer AS tasks,
           coalesce(sum(held.tasks), 0)::integer AS running,
           coalesce(sum(r.succeeded + fresh.succeeded - r.replaced_succeeded), 0)::integer AS succeeded,
           coalesce(sum(r.failed + fresh.failed - r.replaced_failed), 0)::integer AS failed,
           coalesce(sum(r.cancelled + fresh.cancelled - r.replaced_cancelled), 0)::integer AS cancelled
    FROM runs AS r
    /* include batches/run_joins */
    WHERE r.org_id = b.org_id AND r.group_id = b.id AND r.id <> b.current_run
) AS earlier
ORDER BY b.id DESC

-- name: lock
-- Lock a batch. lock_run then locks its run, in a separate statement.
--
-- A single statement that had to wait for the batch would join the new version of the batch with the
-- old snapshot of the runs. After a rerun the current run is not among those, and the batch would
-- seem not to exist.
--
-- $1 org   $2 batch
SELECT FROM batches WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL FOR UPDATE

-- name: lock_run
-- A batch and its current run, locked, so that changes of a run's parts and tasks come one after the
-- other. Sent after lock, whose header gives the reason.
SELECT b.id, b.owner, b.endpoint, b.lane::text AS lane, b.failures_max, b.request_id, b.is_open,
       b.concurrency, b.rate_per_second, b.rate_key_per_second, r.webhook_target, b.webhook_events,
       r.id AS run_id, r.number, r.tasks, r.closed_at, r.latched_at, r.cancel_requested_at,
       r.completed_at
FROM batches AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.id = b.current_run
WHERE b.org_id = $1 AND b.id = $2 AND b.deleted_at IS NULL
FOR UPDATE OF b, r

-- name: move_failed_parts
-- Move the failed parts of a run to the next one, to be ingested from where they stopped. Tasks that
-- were ingested from them stay in the old run, where the rerun finds them.
--
-- Their positions follow the rerun's own part. A part that is a rerun itself keeps its source run if
-- the new run repeats the old one; otherwise it stays behind, because it could repeat the same tasks.
--
-- $1 org   $2 old run   $3 new run   $4 whether the new run repeats the old one
UPDATE batch_parts AS p
SET run_id = $3, state = 'pending', position = p.position + 1, redrives = p.redrives + 1,
    error_code = NULL, error_message = NULL, ingest_job = NULL, updated_at = now(),
    source_run = CASE WHEN p.source = 'rerun' THEN coalesce(p.source_run, old.parent_run) END,
    source_selection = CASE
        WHEN p.source = 'rerun' AND p.source_run IS NULL THEN old.selection
        ELSE p.source_selection
    END
FROM runs AS old
WHERE p.org_id = $1 AND p.run_id = $2 AND p.state = 'failed'
  AND (p.source <> 'rerun' OR $4::boolean)
  AND old.org_id = p.org_id AND old.id = p.run_id
RETURNING p.id

-- name: notify_successes
-- Write webhook deliveries for the tasks that succeeded since the last one: one per run, at most every
-- $1 seconds.
--
-- Returns whether some runs have to wait for their next delivery.
WITH untold AS MATERIALIZED (
    SELECT r.org_id, r.id AS run_id, r.webhook_target
    FROM runs AS r
    JOIN batches AS b ON b.org_id = r.org_id AND b.id = r.group_id
    WHERE r.completed_at IS NULL AND r.succeeded > r.succeeded_told
      AND 'tasks.succeeded' = ANY (b.webhook_events) AND r.webhook_target IS NOT NULL
      AND b.deleted_at IS NULL
),
due AS MATERIALIZED (
    SELECT r.org_id, r.id AS run_id, r.group_id AS batch_id, r.succeeded - r.succeeded_told AS succeeded,
           u.webhook_target
    FROM untold AS u
    JOIN runs AS r ON r.org_id = u.org_id AND r.id = u.run_id
    WHERE r.completed_at IS NULL AND r.succeeded > r.succeeded_told
      AND (
          r.succeeded_told_at IS NULL
          OR r.succeeded_told_at < now() - $1::double precision * interval '1 second'
      )
    FOR UPDATE OF r SKIP LOCKED
),
noted AS (
    UPDATE runs AS r
    SET succeeded_told = r.succeeded, succeeded_told_at = now()
    FROM due AS d
    WHERE r.org_id = d.org_id AND r.id = d.run_id
),
notified AS (
    INSERT INTO webhook_deliveries (
        org_id, target_id, subject_kind, subject_id, run_id, event, facts
    )
    SELECT d.org_id, d.webhook_target, 'batch', d.batch_id, d.run_id, 'tasks.succeeded',
           jsonb_build_object('succeeded', d.succeeded)
    FROM due AS d
)
SELECT (SELECT count(*) FROM untold) > (SELECT count(*) FROM due) AS is_early

-- name: parts_left
-- Whether some of a run's parts wait for their ingest, and whether the ingest of some failed.
--
-- A separate statement, after lock_run: a statement that had to wait for the lock would still see
-- the parts as they were before it.   $1 org   $2 run
SELECT coalesce(bool_or(p.state = 'pending'), false) AS waiting,
       coalesce(bool_or(p.state = 'failed'), false) AS failed
FROM batch_parts AS p
WHERE p.org_id = $1 AND p.run_id = $2 AND p.state <> 'done'

-- name: rerun
-- Create a new run of a batch, and make it the current one. The transaction has locked the batch.
--
-- $1 org   $2 batch   $3 run   $4 number   $5 parent   $6 selection   $7 whether of all runs
WITH run AS (
    INSERT INTO runs (
        org_id, id, group_id, number, parent_run, selection, closed_at, repeats_all, lane, endpoint,
        service, service_endpoint, usage_flow, webhook_target, secrets_id
    )
    SELECT $1, $3, $2, $4, $5, $6::text::jsonb, now(), $7::boolean, r.lane, r.endpoint, r.service,
           r.service_endpoint, r.usage_flow, r.webhook_target, r.secrets_id
    FROM batches AS b
    JOIN runs AS r ON r.org_id = b.org_id AND r.id = b.current_run
    WHERE b.org_id = $1 AND b.id = $2
)
UPDATE batches
SET current_run = $3, completed_at = NULL, expires_at = NULL, updated_at = now()
WHERE org_id = $1 AND id = $2

-- name: run_columns
-- The columns of a run `r`, in the order of RunView. get and list include them, with the joins
-- of run_joins.
r.id AS run_id, r.number, r.parent_run, r.selection::text AS selection,
       CASE
           WHEN r.completed_at IS NOT NULL AND r.cancel_requested_at IS NOT NULL THEN 'cancelled'
           WHEN r.completed_at IS NOT NULL THEN 'completed'
           WHEN r.latched_at IS NOT NULL THEN 'running'
           WHEN r.closed_at IS NULL THEN 'open'
           WHEN stuck.error_code IS NOT NULL AND NOT stuck.others_wait THEN 'failed_ingest'
           ELSE 'ingesting'
       END AS status,
       r.tasks, held.tasks AS running, r.succeeded + fresh.succeeded AS succeeded,
       r.failed + fresh.failed AS failed, r.cancelled + fresh.cancelled AS cancelled,
       r.lines, r.bad_lines, stuck.error_code, stuck.error_message, r.created_at AS run_created_at,
       r.closed_at, r.cancel_requested_at, r.completed_at AS run_completed_at,
       CASE r.number WHEN 1 THEN r.tasks ELSE r.mirrored END AS mirrored, r.replaced_succeeded,
       r.replaced_failed, r.replaced_cancelled, r.repeats_all

-- name: run_joins
-- What the row of a run does not have yet: ended tasks that were not summed up, the number of running
-- tasks, the first failed part, and whether other parts wait for their ingest. A completed run has
-- none of these, and nothing is read for it.
CROSS JOIN LATERAL (
    SELECT coalesce(sum(d.completed), 0)::integer AS succeeded,
           coalesce(sum(d.failed), 0)::integer AS failed,
           coalesce(sum(d.cancelled), 0)::integer AS cancelled
    FROM usage_deltas AS d
    WHERE d.org_id = r.org_id AND d.run_id = r.id AND r.completed_at IS NULL
) AS fresh
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS tasks
    FROM jobs AS j
    WHERE j.org_id = r.org_id AND j.run_id = r.id AND j.run_id IS NOT NULL
      AND j.state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested')
      AND r.completed_at IS NULL
) AS held
LEFT JOIN LATERAL (
    SELECT p.error_code, p.error_message,
           EXISTS (
               SELECT
               FROM batch_parts AS w
               WHERE w.org_id = r.org_id AND w.run_id = r.id AND w.state = 'pending'
                 AND w.state <> 'done'
           ) AS others_wait
    FROM batch_parts AS p
    WHERE p.org_id = r.org_id AND p.run_id = r.id AND p.state = 'failed' AND p.state <> 'done'
      AND r.completed_at IS NULL
    ORDER BY p.position
    LIMIT 1
) AS stuck ON true

-- name: set_ingest_job
-- Record the job that ingests a part.
UPDATE batch_parts SET ingest_job = $3, updated_at = now() WHERE org_id = $1 AND id = $2

-- name: tasks_left
-- Whether a run has tasks that have not ended, by its row and the deltas that were not summed up yet.
--
-- $1 org   $2 run
SELECT r.tasks > r.succeeded + r.failed + r.cancelled + coalesce((
           SELECT sum(d.completed + d.failed + d.cancelled)
           FROM usage_deltas AS d
           WHERE d.org_id = r.org_id AND d.run_id = r.id
       ), 0) AS some
FROM runs AS r
WHERE r.org_id = $1 AND r.id = $2

-- name: view_columns
-- The columns of a batch `b`, in the order of BatchView. get and list include them.
b.org_id, b.id, b.owner, b.service, b.service_endpoint, b.endpoint, b.lane::text AS lane,
       b.is_open,
       b.concurrency, b.rate_per_second, b.rate_key, b.rate_key_per_second, b.webhook_events,
       b.metadata, b.payload_prefix, b.payload_suffix, b.created_at, b.completed_at, b.expires_at
