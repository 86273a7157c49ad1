-- name: cancel_runs
-- Cancel the runs of a deleted batch that have not ended, before they are removed.
UPDATE runs
SET cancel_requested_at = now()
WHERE org_id = :org AND group_id = :batch AND completed_at IS NULL AND cancel_requested_at IS NULL
RETURNING id

-- name: cancel_waiting
-- staged, queued, retrying -> cancelled, for some tasks of a cancelled run, as jobs/cancel does for
-- one job, with usage and webhooks. Tasks that a claim holds right now are skipped; request_cancel
-- asks them to stop later.
--
-- :rows_max of the queued ones, and as many of the others.
WITH queued AS MATERIALIZED (
    SELECT j.org_id, j.id, octet_length(j.payload) AS payload_bytes
    FROM (
        SELECT q.org_id, unnest(q.ids) AS id
        FROM queue AS q
        WHERE /* include tasks/in_queue */
        ORDER BY q.flow, q.run_at, q.id
    ) AS n
    CROSS JOIN LATERAL (
        SELECT j.org_id, j.id, j.payload
        FROM jobs AS j
        WHERE j.org_id = n.org_id AND j.id = n.id AND j.state = 'queued'
        FOR UPDATE SKIP LOCKED
    ) AS j
    LIMIT :rows_max::integer
),
later AS MATERIALIZED (
    SELECT j.org_id, j.id, octet_length(j.payload) AS payload_bytes
    FROM (
        SELECT p.org_id, p.id
        FROM postponed AS p
        WHERE p.org_id = :org AND p.run_id = :run
        ORDER BY p.task_index
    ) AS p
    CROSS JOIN LATERAL (
        SELECT j.org_id, j.id, j.payload
        FROM jobs AS j
        WHERE j.org_id = p.org_id AND j.id = p.id AND j.state IN ('staged', 'retrying')
        FOR UPDATE SKIP LOCKED
    ) AS j
    LIMIT :rows_max::integer
),
waiting AS (
    SELECT q.org_id, q.id, q.payload_bytes FROM queued AS q
    UNION ALL
    SELECT l.org_id, l.id, l.payload_bytes FROM later AS l
),
changed AS (
    UPDATE jobs AS j
    SET /* include coatcheck.core:jobs/set_end */,
        error_code = 'cancelled', error_message = 'its batch was cancelled before it started'
    FROM (
        SELECT w.*, 'cancelled'::job_state AS state, 0 AS keep_seconds FROM waiting AS w
    ) AS next
    WHERE j.org_id = next.org_id AND j.id = next.id
    RETURNING j.org_id, j.id, j.lane, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              next.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, j.expires_at, j.owner, j.task_index, old.state AS previous, j.run_at
),
moved AS (
    SELECT c.* FROM changed AS c
),
attempts AS (
    /* include coatcheck.core:jobs/no_attempts */
),
/* include coatcheck.core:queue/leave */,
/* include coatcheck.core:postponed/leave */,
/* include coatcheck.core:jobs/ended */
SELECT count(*) AS tasks, min(c.lane)::text AS lane FROM changed AS c

-- name: cancelling
-- Cancelled runs that have not completed, one page of them: among the runs that have not ended, which
-- are few.
SELECT r.org_id, r.id, r.group_id AS batch_id
FROM runs AS r
WHERE r.completed_at IS NULL AND r.cancel_requested_at IS NOT NULL
  AND (r.org_id, r.id) > (:after_org, :after_run::uuid)
ORDER BY r.org_id, r.id
LIMIT :rows_max

-- name: close_idle
-- Close open runs that got no tasks for long. Their owners have forgotten them, and they would never
-- end. The reconciler latches them.
WITH idle AS MATERIALIZED (
    SELECT r.org_id, r.id
    FROM runs AS r
    LEFT JOIN LATERAL (
        SELECT p.created_at
        FROM batch_parts AS p
        WHERE p.org_id = r.org_id AND p.run_id = r.id
        ORDER BY p.position DESC
        LIMIT 1
    ) AS last ON true
    WHERE r.closed_at IS NULL
      AND r.created_at < now() - :seconds::double precision * interval '1 second'
      AND coalesce(last.created_at, r.created_at)
          < now() - :seconds::double precision * interval '1 second'
    ORDER BY r.created_at
    LIMIT :runs_max::integer
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs AS r
SET closed_at = now()
FROM idle AS i
WHERE r.org_id = i.org_id AND r.id = i.id
RETURNING r.group_id AS batch_id

-- name: delete_parts
-- Delete parts with their invalid lines and their uploads. Their lists were deleted before.
WITH parts_gone AS (
    DELETE FROM batch_parts AS p USING unnest(:parts::uuid[]) AS t (id)
    WHERE p.org_id = :org AND p.id = t.id
    RETURNING p.id
),
lines_gone AS (
    DELETE FROM batch_bad_lines AS l USING unnest(:parts::uuid[]) AS t (id)
    WHERE l.org_id = :org AND l.part_id = t.id
),
uploads_gone AS (
    DELETE FROM uploads AS u USING unnest(:uploads::uuid[]) AS t (id)
    WHERE u.org_id = :org AND u.id = t.id
)
SELECT count(*) AS parts FROM parts_gone

-- name: delete_tasks
-- Delete the last tasks of a run with everything that belongs to them, and record how many tasks the
-- run still has, so that the next step knows where to continue. Their blobs were deleted before; the
-- records of their artifacts say so from this commit on.
WITH moved AS MATERIALIZED (
    UPDATE runs SET tasks = :tasks_after::integer
    WHERE org_id = :org AND id = :run AND tasks = :tasks_before::integer
    RETURNING org_id
),
old AS MATERIALIZED (
    SELECT m.org_id, t.id FROM moved AS m CROSS JOIN unnest(:ids::uuid[]) AS t (id)
),
jobs_gone AS (
    DELETE FROM jobs AS j USING old AS o WHERE j.org_id = o.org_id AND j.id = o.id
    RETURNING j.org_id, j.id, j.owner, j.endpoint
),
events_gone AS (
    DELETE FROM job_events AS e USING old AS o WHERE e.org_id = o.org_id AND e.job_id = o.id
),
ends_gone AS (
    DELETE FROM ended_tasks AS t USING moved AS m
    WHERE t.org_id = m.org_id AND t.run_id = :run
      AND t.state IN ('completed', 'failed', 'cancelled') AND t.block >= (:tasks_after + 63) / 64
),
positions_gone AS (
    DELETE FROM batch_positions AS p USING moved AS m
    WHERE p.org_id = m.org_id AND p.run_id = :run
      AND p.task_index >= :tasks_after AND p.task_index < :tasks_before
),
remote_calls_gone AS (
    DELETE FROM remote_calls AS c USING old AS o WHERE c.org_id = o.org_id AND c.job_id = o.id
),
artifacts_gone AS (
    DELETE FROM artifacts AS a USING old AS o WHERE a.org_id = o.org_id AND a.job_id = o.id
    RETURNING a.*
),
gone AS (
    SELECT a.*, j.owner, j.endpoint, '' AS flow, now() AS deleted_at, 'batch_removed' AS mechanism
    FROM artifacts_gone AS a JOIN jobs_gone AS j ON j.org_id = a.org_id AND j.id = a.job_id
),
recorded AS (
    /* include coatcheck.core:artifacts/open_records */
)
SELECT count(*) AS tasks FROM jobs_gone

-- name: deleted
-- Deleted batches, whose data is to be removed: one page of them.
SELECT b.org_id, b.id, b.deleted_at
FROM batches AS b
WHERE b.deleted_at IS NOT NULL AND (b.deleted_at, b.id) > (:after_time::timestamptz, :after_batch::uuid)
ORDER BY b.deleted_at, b.id
LIMIT :rows_max

-- name: end_ingest
-- End the ingest of a cancelled run: its parts are done, and it is latched with the tasks written so
-- far, so that it completes when those have ended.
--
-- A writer of a chunk locks the run first, and writes nothing to a cancelled one. This statement locks
-- it first as well, and so waits for a chunk that is being written. A repeat changes nothing.
WITH run AS MATERIALIZED (
    SELECT r.org_id, r.id FROM runs AS r
    WHERE r.org_id = :org AND r.id = :run AND r.cancel_requested_at IS NOT NULL
    FOR UPDATE
),
latched AS (
    UPDATE runs AS r
    SET total = r.tasks, latched_at = now(), closed_at = coalesce(r.closed_at, now())
    FROM run
    WHERE r.org_id = run.org_id AND r.id = run.id AND r.latched_at IS NULL
    RETURNING r.id
),
ended AS (
    UPDATE batch_parts AS p
    SET state = 'done', updated_at = now()
    FROM run
    WHERE p.org_id = run.org_id AND p.run_id = run.id AND p.state IN ('pending', 'failed')
    RETURNING p.org_id, p.id, p.upload_id
),
released AS (
    UPDATE uploads AS u SET released_at = now()
    FROM ended AS e
    WHERE u.org_id = e.org_id AND u.id = e.upload_id
)
SELECT (SELECT count(*) FROM latched) AS latched, (SELECT count(*) FROM ended) AS parts

-- name: expire
-- Delete batches whose retention has ended, as if somebody had deleted them. Their idempotency keys
-- become free, as those of jobs do. The same for batches whose failed ingest nobody has acted on for
-- long: they would never end.
--
-- The newest run of each is locked first. The chunk of a rerun, which changes older runs, does so too.
WITH old AS MATERIALIZED (
    SELECT b.org_id, b.id
    FROM batches AS b
    WHERE b.expires_at IS NOT NULL AND b.expires_at <= now() AND b.deleted_at IS NULL
    ORDER BY b.expires_at
    LIMIT :batches_max::integer
    FOR UPDATE SKIP LOCKED
),
stuck AS MATERIALIZED (
    SELECT b.org_id, b.id
    FROM (
        SELECT p.org_id, p.batch_id, p.run_id
        FROM batch_parts AS p
        WHERE p.state = 'failed'
          AND p.updated_at < now() - :abandoned_seconds::double precision * interval '1 second'
        LIMIT :batches_max::integer
    ) AS p
    JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id AND b.current_run = p.run_id
    WHERE b.deleted_at IS NULL
    FOR UPDATE OF b SKIP LOCKED
),
deleted AS (
    UPDATE batches AS b
    SET deleted_at = now(), updated_at = now(), idempotency_key = NULL
    FROM (SELECT * FROM old UNION SELECT * FROM stuck) AS o
    WHERE b.org_id = o.org_id AND b.id = o.id
    RETURNING b.org_id, b.id
),
left_runs AS MATERIALIZED (
    SELECT r.org_id, r.id
    FROM deleted AS d
    JOIN runs AS r ON r.org_id = d.org_id AND r.group_id = d.id
    ORDER BY r.org_id, r.group_id, r.number DESC
    FOR UPDATE OF r
),
hidden AS (
    UPDATE runs AS r SET removed_at = now()
    FROM left_runs AS l
    WHERE r.org_id = l.org_id AND r.id = l.id
)
SELECT d.id FROM deleted AS d

-- name: finish
-- Delete a batch of which nothing else is left, with its runs and their limits. Not before the usage of
-- its tasks is summed up, because the sums are recorded under the batch.
WITH settled AS MATERIALIZED (
    SELECT b.org_id, b.id
    FROM batches AS b
    WHERE b.org_id = :org AND b.id = :batch AND b.deleted_at IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM runs AS r
          JOIN usage_deltas AS d ON d.org_id = r.org_id AND d.run_id = r.id
          WHERE r.org_id = b.org_id AND r.group_id = b.id
      )
    FOR UPDATE
),
ended AS (
    DELETE FROM runs AS r USING settled AS s
    WHERE r.org_id = s.org_id AND r.group_id = s.id
    RETURNING r.org_id, r.id AS run_id
),
/* include coatcheck.core:limits/clear_run */,
batch_gone AS (
    DELETE FROM batches AS b USING settled AS s WHERE b.org_id = s.org_id AND b.id = s.id
    RETURNING b.id
)
SELECT count(*) AS batches FROM batch_gone

-- name: parts
-- Parts of a run that is being removed, with the keys of their lists.
SELECT p.id, p.source, p.source_key, p.upload_id, u.blob_key AS upload_key
FROM batch_parts AS p
LEFT JOIN uploads AS u ON u.org_id = p.org_id AND u.id = p.upload_id
WHERE p.org_id = :org AND p.run_id = :run
ORDER BY p.position
LIMIT :rows_max

-- name: request_cancel
-- dispatching, processing, finalizing -> cancel_requested, for tasks of a cancelled run. Returns each
-- task with the worker that holds it, which is then notified. A remote call is made due at once. No
-- webhook is written: webhooks report the ends of tasks.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease
    FROM claimed_jobs AS k
    CROSS JOIN LATERAL (
        SELECT j.org_id, j.id, j.lease
        FROM jobs AS j
        WHERE j.org_id = k.org_id AND j.id = k.id AND j.lease = k.lease AND j.run_id = :run
          AND j.state IN ('dispatching', 'processing', 'finalizing')
        FOR UPDATE SKIP LOCKED
    ) AS j
    WHERE k.org_id = :org
    LIMIT :rows_max::integer
),
remote_calls_made AS MATERIALIZED (
    SELECT r.org_id, r.job_id
    FROM held AS h
    JOIN remote_calls AS r ON r.org_id = h.org_id AND r.job_id = h.id AND r.lease = h.lease
    WHERE h.lease >> 40 = 0
    ORDER BY r.org_id, r.job_id
    FOR UPDATE OF r
),
woken AS (
    UPDATE remote_calls AS r
    SET due_at = now(), looker = NULL
    FROM remote_calls_made AS e
    WHERE r.org_id = e.org_id AND r.job_id = e.job_id
)
UPDATE jobs AS j
SET state = 'cancel_requested', updated_at = now()
FROM held AS h
WHERE j.org_id = h.org_id AND j.id = h.id AND j.lease = h.lease
RETURNING j.id, h.lease >> 40 AS boot

-- name: runs
-- The runs of a batch that is being removed: how many tasks each still has, and whether it is quiet. In
-- a quiet run nothing waits, runs or is being ingested, and that cannot change any more.
SELECT r.id, r.tasks,
       r.latched_at IS NOT NULL
       AND NOT EXISTS (
           SELECT FROM held_jobs AS h WHERE h.org_id = r.org_id AND h.run_id = r.id
       )
       AND NOT EXISTS (
           SELECT
           FROM postponed AS p
           /* include coatcheck.core:postponed/job */
           WHERE p.org_id = r.org_id AND p.run_id = r.id
           OFFSET 0
       )
       AND NOT EXISTS (
           SELECT
           FROM (
               SELECT q.org_id, unnest(q.ids) AS id
               FROM queue AS q
               WHERE q.lane = b.lane AND q.endpoint = b.endpoint
                 AND q.org_id = r.org_id AND q.flow >= replace(r.id::text, '-', '')
                 AND q.flow < replace(r.id::text, '-', '') || '0'
           ) AS n
           /* include coatcheck.core:queue/job */
       ) AS is_quiet
FROM batches AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.group_id = b.id
WHERE b.org_id = :org AND b.id = :batch
ORDER BY r.number

-- name: task_blobs
-- The blob keys of the tasks' artifacts.
SELECT a.blob_key
FROM unnest(:ids::uuid[]) AS t (id)
JOIN artifacts AS a ON a.org_id = :org AND a.job_id = t.id
