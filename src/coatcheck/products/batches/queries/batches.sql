-- name: add_part
-- Add a part to a run, and, if the request has them, its tasks. The transaction has locked the run.
--
-- :is_whole: whether :ids and the other arrays are all tasks of the part. :source_before: a rerun of the
-- whole batch repeats tasks of runs with numbers below this.
WITH run AS (
    UPDATE runs AS r
    SET tasks = r.tasks + cardinality(:ids::uuid[]), lines = r.lines + cardinality(:ids::uuid[])
    WHERE r.org_id = :org AND r.id = :run
    RETURNING r.org_id, r.id, r.tasks - cardinality(:ids::uuid[]) AS first
),
part AS (
    INSERT INTO batch_parts (
        org_id, id, batch_id, run_id, position, source, source_key, source_pieces, source_bytes,
        upload_id, idempotency_key, fingerprint, state, lines, tasks, source_etag, source_before
    )
    SELECT :org, :part, :batch, :run, (
               SELECT coalesce(max(p.position), 0) + 1
               FROM batch_parts AS p
               WHERE p.org_id = :org AND p.run_id = :run
           ), :source::text, :source_key::text, :source_pieces::integer, :source_bytes::bigint,
           :upload::uuid, :idempotency_key::text, :fingerprint::bytea,
           CASE WHEN :is_whole::boolean THEN 'done' ELSE 'pending' END, cardinality(:ids::uuid[]),
           cardinality(:ids::uuid[]), :source_etag::text, :source_before::integer
),
written AS (
    INSERT INTO jobs (
        org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id, run_id,
        task_index, custom_id, webhook
    )
    SELECT :org, t.id, b.lane, b.endpoint, t.flow, b.failures_max, t.payload, b.owner, b.request_id,
           r.id, r.first + t.number - 1, t.custom_id, :webhook::smallint
    FROM batches AS b
    CROSS JOIN run AS r
    CROSS JOIN unnest(:ids::uuid[], :payloads::bytea[], :custom_ids::text[], :queue_keys::text[])
        WITH ORDINALITY AS t (id, payload, custom_id, flow, number)
    WHERE b.org_id = :org AND b.id = :batch
    RETURNING org_id, id, lane, endpoint, flow, run_at
),
/* include batches/queue_written */
SELECT r.first FROM run AS r

-- name: queue_written
-- Queue the tasks that a statement wrote: common table expressions from its `written`.
queued AS (
    SELECT w.org_id, w.id, w.lane, w.endpoint, w.flow, w.run_at FROM written AS w
),
added AS (
    /* include coatcheck.core:queue/add */
)

-- name: cancel
-- Request the cancellation of a run, and close it. Maintenance cancels its waiting tasks in small
-- steps. A repeat changes nothing.
UPDATE runs
SET cancel_requested_at = coalesce(cancel_requested_at, now()),
    closed_at = coalesce(closed_at, now())
WHERE org_id = :org AND id = :run

-- name: close
-- Close a run, so that it accepts no more tasks. A repeat changes nothing.
UPDATE runs SET closed_at = coalesce(closed_at, now()) WHERE org_id = :org AND id = :run

-- name: complete
-- Complete the runs whose tasks have all ended: once, with everything that must be true then. The
-- webhook deliveries, to the batch's own target and to the organisation's endpoints, commit with it.
--
-- Only latched runs have a total. The counters are those of the row: the deltas were added before.
--
-- Every change of a batch locks the batch and then its run. To hold a run while waiting for its batch
-- could deadlock. So a run whose batch is being changed right now is left for the next tick.
WITH ended AS MATERIALIZED (
    SELECT r.org_id, r.id AS run_id, r.group_id AS batch_id, r.number, r.total, r.succeeded, r.failed,
           r.cancelled, r.succeeded_told, r.webhook_target,
           CASE WHEN r.cancel_requested_at IS NULL THEN 'completed' ELSE 'cancelled' END AS status
    FROM runs AS r
    JOIN batches AS b ON b.org_id = r.org_id AND b.id = r.group_id
    WHERE r.completed_at IS NULL AND r.latched_at IS NOT NULL
      AND r.succeeded + r.failed + r.cancelled = r.total
    LIMIT :runs_max::integer
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
-- :is_whole: whether :ids and the other arrays are all tasks of the part. :part is NULL without a part.
WITH created AS (
    INSERT INTO batches (
        org_id, id, current_run, owner, service, service_endpoint, endpoint, lane, failures_max,
        is_open, payload_prefix, payload_suffix, concurrency, rate_per_second, rate_key,
        rate_key_per_second, webhook_events, metadata, keep_seconds, idempotency_key, fingerprint,
        request_id
    )
    VALUES (
        :org, :batch, :run, :owner, :service, :service_endpoint, :endpoint, :lane::text::job_lane,
        :failures_max, :is_open, :payload_prefix, :payload_suffix, :concurrency, :rate_per_second,
        :rate_key, :rate_key_per_second, :webhook_events::text[], :metadata, :keep_seconds,
        :idempotency_key, :fingerprint, :request_id
    )
    ON CONFLICT DO NOTHING
    RETURNING org_id, id, lane
),
run AS (
    INSERT INTO runs (
        org_id, id, group_id, number, lane, endpoint, service, service_endpoint, usage_flow,
        webhook_target, secrets_id, tasks, lines, total, closed_at, latched_at
    )
    SELECT c.org_id, :run, c.id, 1, c.lane, :endpoint, :service, :service_endpoint, :usage_queue_key,
           :webhook_target, :secrets::uuid, cardinality(:ids::uuid[]), cardinality(:ids),
           CASE WHEN :is_whole::boolean AND NOT :is_open THEN cardinality(:ids) END,
           CASE WHEN NOT :is_open THEN now() END,
           CASE WHEN :is_whole AND NOT :is_open THEN now() END
    FROM created AS c
),
part AS (
    INSERT INTO batch_parts (
        org_id, id, batch_id, run_id, position, source, source_key, source_pieces, source_bytes,
        upload_id, state, lines, tasks, source_etag
    )
    SELECT c.org_id, :part, c.id, :run, 1, :source::text, :source_key::text, :source_pieces::integer,
           :source_bytes::bigint, :upload::uuid, CASE WHEN :is_whole THEN 'done' ELSE 'pending' END,
           cardinality(:ids), cardinality(:ids), :source_etag::text
    FROM created AS c
    WHERE :part::uuid IS NOT NULL
),
written AS (
    INSERT INTO jobs (
        org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id, run_id,
        task_index, custom_id, webhook
    )
    SELECT c.org_id, t.id, c.lane, :endpoint, t.flow, :failures_max, t.payload, :owner, :request_id,
           :run, t.number - 1, t.custom_id, :webhook::smallint
    FROM created AS c
    CROSS JOIN unnest(:ids::uuid[], :payloads::bytea[], :custom_ids::text[], :queue_keys::text[])
        WITH ORDINALITY AS t (id, payload, custom_id, flow, number)
    RETURNING org_id, id, lane, endpoint, flow, run_at
),
/* include batches/queue_written */
SELECT c.id FROM created AS c

-- name: delete
-- Mark a batch as deleted: callers cannot read it any more, and its idempotency key is free.
-- Maintenance removes its data.
WITH deleted AS (
    UPDATE batches
    SET deleted_at = now(), updated_at = now(), idempotency_key = NULL
    WHERE org_id = :org AND id = :batch AND deleted_at IS NULL
    RETURNING org_id, id
),
hidden AS (
    UPDATE runs AS r
    SET removed_at = now()
    FROM deleted AS d
    WHERE r.org_id = d.org_id AND r.group_id = d.id
)
SELECT d.id FROM deleted AS d

-- name: ended_tasks
-- The tasks of a run that ended in one of :states, in no order: included by has_latest and has_selected.
SELECT unnest(t.numbers) AS task_index, unnest(t.ids) AS id
        FROM ended_tasks AS t
        WHERE t.org_id = :org AND t.run_id = :run
          AND t.state = ANY (:states::text[]::job_state[])

-- name: find_existing
-- The batch that prevented an insert: it has the same id (our own statement, sent twice), or the same
-- idempotency key. Without :batch, the one that holds the key.
SELECT b.id, b.fingerprint
FROM batches AS b
WHERE b.org_id = :org AND b.id = :batch::uuid
UNION ALL
SELECT b.id, b.fingerprint
FROM batches AS b
WHERE b.org_id = :org AND b.idempotency_key = :idempotency_key
LIMIT 1

-- name: find_part
-- The part of a batch that prevented an insert: it has the same id (our own statement, sent twice), or
-- the same idempotency key.
SELECT p.id, p.fingerprint
FROM batch_parts AS p
WHERE p.org_id = :org AND p.id = :part::uuid
UNION ALL
SELECT p.id, p.fingerprint
FROM batch_parts AS p
WHERE p.org_id = :org AND p.batch_id = :batch AND p.idempotency_key = :idempotency_key
LIMIT 1

-- name: get
-- A batch: one row for each of its runs, oldest first.
WITH /* include batches/held_tasks */
SELECT /* include batches/view_columns */,
       /* include batches/run_columns */
FROM batches AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.group_id = b.id
/* include batches/run_joins */
WHERE b.org_id = :org AND b.id = :batch AND b.deleted_at IS NULL
ORDER BY r.number

-- name: get_of_run
-- The batch of a run, with the columns and rows of get.
WITH /* include batches/held_tasks */
SELECT /* include batches/view_columns */,
       /* include batches/run_columns */
FROM runs AS one
JOIN batches AS b ON b.org_id = one.org_id AND b.id = one.group_id
JOIN runs AS r ON r.org_id = b.org_id AND r.group_id = b.id
/* include batches/run_joins */
WHERE one.org_id = :org AND one.id = :run AND b.deleted_at IS NULL
ORDER BY r.number

-- name: has_latest
-- Whether a run has a task that is the latest of its position, ended in one of these states, and has
-- one of these error codes.
SELECT EXISTS (
    SELECT
    FROM (
        SELECT e.task_index
        FROM (/* include batches/ended_tasks */) AS e
        WHERE /* include tasks/has_code */
    ) AS seen
    LEFT JOIN batch_positions AS own
        ON own.org_id = :org AND own.run_id = :run AND own.task_index = seen.task_index
    WHERE /* include tasks/is_latest */
)

-- name: has_selected
-- Whether a run has a task that ended in one of these states, with one of these error codes.
SELECT EXISTS (
    SELECT
    FROM (/* include batches/ended_tasks */) AS e
    WHERE /* include tasks/has_code */
)

-- name: list
-- An organisation's batches, newest first, of one owner or of all. Each has its current run and the
-- sum of the earlier ones, without tasks that a later run has repeated.
--
-- Two branches, of which the planner drops one: with an OR, the few batches of one owner would be
-- searched among all batches. In them a batch is `j`, as in every list.
WITH /* include batches/held_tasks */,
page AS MATERIALIZED (
    (
        SELECT j.*
        FROM batches AS j
        WHERE j.org_id = :org AND j.deleted_at IS NULL AND :owner::text IS NULL
          AND j.id < :before::uuid AND j.id >= :above::uuid
          AND /* include coatcheck.core:lists/every_list */
        ORDER BY j.id DESC
        LIMIT :limit
    )
    UNION ALL
    (
        SELECT j.*
        FROM batches AS j
        WHERE j.org_id = :org AND j.owner = :owner AND j.deleted_at IS NULL
          AND j.id < :before::uuid AND j.id >= :above::uuid
          AND /* include coatcheck.core:lists/every_list */
        ORDER BY j.id DESC
        LIMIT :limit
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
SELECT FROM batches WHERE org_id = :org AND id = :batch AND deleted_at IS NULL FOR UPDATE

-- name: lock_run
-- A batch and its current run, locked, so that changes of a run's parts and tasks come one after the
-- other. Sent after lock, whose header gives the reason.
SELECT b.id, b.owner, b.endpoint, b.lane::text AS lane, b.failures_max, b.request_id, b.is_open,
       b.concurrency, b.rate_per_second, b.rate_key_per_second, r.webhook_target, b.webhook_events,
       r.id AS run_id, r.number, r.tasks, r.closed_at, r.latched_at, r.cancel_requested_at,
       r.completed_at
FROM batches AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.id = b.current_run
WHERE b.org_id = :org AND b.id = :batch AND b.deleted_at IS NULL
FOR UPDATE OF b, r

-- name: move_failed_parts
-- Move the failed parts of a run to the next one, to be ingested from where they stopped. Tasks that
-- were ingested from them stay in the old run, where the rerun finds them.
--
-- Their positions follow the rerun's own part. A part that is a rerun itself keeps its source run if
-- the new run repeats the old one; otherwise it stays behind, because it could repeat the same tasks.
UPDATE batch_parts AS p
SET run_id = :new_run, state = 'pending', position = p.position + 1, redrives = p.redrives + 1,
    error_code = NULL, error_message = NULL, ingest_job = NULL, updated_at = now(),
    source_run = CASE WHEN p.source = 'rerun' THEN coalesce(p.source_run, old.parent_run) END,
    source_selection = CASE
        WHEN p.source = 'rerun' AND p.source_run IS NULL THEN old.selection
        ELSE p.source_selection
    END
FROM runs AS old
WHERE p.org_id = :org AND p.run_id = :old_run AND p.state = 'failed'
  AND (p.source <> 'rerun' OR :repeats_old_run::boolean)
  AND old.org_id = p.org_id AND old.id = p.run_id
RETURNING p.id

-- name: notify_successes
-- Write webhook deliveries for the tasks that succeeded since the last one: one per run, at most every
-- :seconds. Returns whether some runs have to wait for their next delivery.
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
          OR r.succeeded_told_at < now() - :seconds::double precision * interval '1 second'
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
-- the parts as they were before it.
SELECT coalesce(bool_or(p.state = 'pending'), false) AS waiting,
       coalesce(bool_or(p.state = 'failed'), false) AS failed
FROM batch_parts AS p
WHERE p.org_id = :org AND p.run_id = :run AND p.state <> 'done'

-- name: rerun
-- Create a new run of a batch, and make it the current one. The transaction has locked the batch.
WITH run AS (
    INSERT INTO runs (
        org_id, id, group_id, number, parent_run, selection, closed_at, repeats_all, lane, endpoint,
        service, service_endpoint, usage_flow, webhook_target, secrets_id
    )
    SELECT :org, :run, :batch, :number, :parent, :selection::text::jsonb, now(), :all_runs::boolean,
           r.lane, r.endpoint, r.service, r.service_endpoint, r.usage_flow,
           r.webhook_target, r.secrets_id
    FROM batches AS b
    JOIN runs AS r ON r.org_id = b.org_id AND r.id = b.current_run
    WHERE b.org_id = :org AND b.id = :batch
)
UPDATE batches
SET current_run = :run, completed_at = NULL, expires_at = NULL, updated_at = now()
WHERE org_id = :org AND id = :batch

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

-- name: held_tasks
-- How many tasks of each run of the organisation run now: a common table expression of the statements
-- that include run_joins. Read once, however many runs they show, and not at all if those are completed.
held_tasks AS MATERIALIZED (
    SELECT h.run_id, count(*) AS tasks
    FROM held_jobs AS h
    WHERE h.org_id = :org AND h.run_id IS NOT NULL
    GROUP BY h.run_id
)

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
    SELECT coalesce(sum(t.tasks), 0)::integer AS tasks
    FROM held_tasks AS t
    WHERE t.run_id = r.id AND r.completed_at IS NULL
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

-- name: tasks_left
-- Whether a run has tasks that have not ended, by its row and the deltas that were not summed up yet.
SELECT r.tasks > r.succeeded + r.failed + r.cancelled + coalesce((
           SELECT sum(d.completed + d.failed + d.cancelled)
           FROM usage_deltas AS d
           WHERE d.org_id = r.org_id AND d.run_id = r.id
       ), 0) AS some
FROM runs AS r
WHERE r.org_id = :org AND r.id = :run

-- name: view_columns
-- The columns of a batch `b`, in the order of BatchView. get and list include them.
b.org_id, b.id, b.owner, b.service, b.service_endpoint, b.endpoint, b.lane::text AS lane,
       b.is_open,
       b.concurrency, b.rate_per_second, b.rate_key, b.rate_key_per_second, b.webhook_events,
       b.metadata, b.payload_prefix, b.payload_suffix, b.created_at, b.completed_at, b.expires_at
